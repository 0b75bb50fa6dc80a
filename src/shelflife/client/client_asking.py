"""Questions of a memory by a client that a program has already: with its credentials, its proxy and its certificates."""

import inspect
from typing import Any, Protocol

from shelflife.client.asking import LARGEST_ANSWER, AnyAsk, Question, Reply
from shelflife.client.entries import origin_of

__all__ = ["HttpClient", "ask_of"]

_BODY_AND_REDIRECTS = {
    "httpx2": ("content", "follow_redirects"),
    "httpx": ("content", "follow_redirects"),
    "requests": ("data", "allow_redirects"),
    "aiohttp": ("data", "allow_redirects"),
}
"""By library, what these are called among the options of a request."""


class HttpClient(Protocol):
    """A client or session of httpx2, httpx, requests or aiohttp."""

    @property
    def request(self) -> Any:
        """Sends a request."""


def ask_of(given: AnyAsk | HttpClient) -> AnyAsk:
    """What puts questions to servers: a function that does, or one that does it by this client.

    It follows no redirect, and a client with a `base_url` is not sent to any other origin: what it logs in with is for that one.
    """
    client: Any = given
    libraries = {base.__module__.partition(".")[0] for base in type(client).__mro__}
    library = next((name for name in _BODY_AND_REDIRECTS if name in libraries), None)
    if library is None or not hasattr(client, "request"):
        if callable(client) and not isinstance(client, type):
            return client  # type: ignore[no-any-return]
        kind = client.__name__ if isinstance(client, type) else type(client).__name__
        raise TypeError(
            "ask takes a function that answers a question, or a client of httpx2, httpx, requests or aiohttp,"
            f" and not {'the class ' if isinstance(client, type) else ''}{kind}"
        )
    body, redirects = _BODY_AND_REDIRECTS[library]

    def sent(question: Question) -> Any:
        headers = {"Content-Type": "application/json", **question.headers}
        options: dict[str, Any] = {body: question.body, redirects: False, "headers": headers}
        if (
            library != "aiohttp"
        ):  # which wants a class of its own there; what is awaited is called off in time
            options["timeout"] = question.within_s
        return client.request(question.method, question.url, **options)

    def ask(question: Question) -> Reply | None:
        return _reply(sent(question)) if _is_for(client, question) else None

    async def ask_async(question: Question) -> Reply | None:
        return _reply(await sent(question)) if _is_for(client, question) else None

    async def ask_in_session(question: Question) -> Reply | None:
        if not _is_for(client, question):
            return None
        async with sent(question) as response:
            return _whole(response.status, await response.read())

    if library == "aiohttp":
        return ask_in_session
    return ask_async if inspect.iscoroutinefunction(client.request) else ask


def _is_for(client: Any, question: Question) -> bool:
    base = str(getattr(client, "base_url", None) or getattr(client, "_base_url", None) or "")
    return not base or origin_of(base) == origin_of(question.url)


def _reply(response: Any) -> Reply | None:
    return _whole(response.status_code, response.content)


def _whole(status: int, body: bytes) -> Reply | None:
    return Reply(status, body) if len(body) <= LARGEST_ANSWER else None
