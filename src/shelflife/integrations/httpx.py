"""A memory behind an HTTP client: a transport for `httpx2`, and for `httpx`, that watches every response.

Nothing else in the user's code changes:

    client = httpx2.Client(transport=MemoryTransport(Memory()))

The transports wrap another one and hand on whatever library's requests and responses they are given.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import msgspec

from shelflife.client.guard import Amended, Guard
from shelflife.client.memory import Exchange, Fetched, Memory

__all__ = ["AsyncMemoryTransport", "MemoryTransport"]

_LARGEST_WATCHED = 1024 * 1024
_LARGEST_ANSWER = 8 * 1024 * 1024
_OF_THE_BODY = ("content-", "transfer-encoding", "expect", "if-", "range", "idempotency-key", "prefer")
_EXTENSION = "shelflife"

OperationOf = Callable[[Any], str]
"""Names the operation of a request; by default its method and path."""


def method_and_path(request: Any) -> str:
    """The operation of a request whose path holds no identifiers."""
    return f"{request.method} {request.url.path}"


class _Watching:
    """What both transports share: everything but waiting."""

    _default_transport: str

    def __init__(
        self,
        memory: Memory,
        transport: Any = None,
        *,
        guard: Guard | None = None,
        operation: OperationOf = method_and_path,
    ) -> None:
        """Watch `transport`, by default one of httpx2's; with a `guard`, amend requests too."""
        if transport is None:
            import httpx2

            transport = getattr(httpx2, self._default_transport)()
        self.memory = memory
        self._transport = transport
        self._guard = guard
        self._operation = operation

    def _prepared(self, request: Any) -> tuple[Any, Mapping[str, Any] | None]:
        """The request to send, amended where that is asked for, and its fields; None when it has none to watch."""
        fields = _json_object(request.headers, request.content)
        if fields is None or self._guard is None:
            return request, fields
        amended = self.memory.amend(_origin(request), self._operation(request), fields, self._guard)
        request.extensions[_EXTENSION] = amended
        return _with_fields(request, amended), amended.request

    def _exchange(self, request: Any, fields: Mapping[str, Any] | None, response: Any) -> Exchange:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Exchange(
            origin=_origin(request),
            operation=self._operation(request),
            request=fields or {},
            status=response.status_code,
            headers=headers,
            body=response.content if _is_watched(headers) else b"",
        )


class MemoryTransport(_Watching):
    """Watches the responses of another transport, and amends requests when it is given a guard."""

    _default_transport = "HTTPTransport"

    def handle_request(self, request: Any) -> Any:
        request.read()
        sent, fields = self._prepared(request)
        response = self._transport.handle_request(sent)
        if _is_watched(response.headers):
            response.read()

        def fetch(url: str) -> Fetched | None:
            try:
                answer = self._transport.handle_request(_question(request, url))
                with closing(answer):
                    body = bytearray()
                    for chunk in answer.iter_bytes():
                        body += _bounded(chunk, body)
                return Fetched(answer.status_code, bytes(body))
            except Exception:  # noqa: BLE001 - whatever the transport raises, the server could not tell
                return None

        self.memory.observe(self._exchange(sent, fields, response), fetch)
        return response

    def close(self) -> None:
        """Close the transport that does the work."""
        self._transport.close()

    def __enter__(self) -> "MemoryTransport":
        self._transport.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._transport.__exit__(*exception)


class AsyncMemoryTransport(_Watching):
    """The same for async clients."""

    _default_transport = "AsyncHTTPTransport"

    async def handle_async_request(self, request: Any) -> Any:
        await request.aread()
        sent, fields = self._prepared(request)
        response = await self._transport.handle_async_request(sent)
        if _is_watched(response.headers):
            await response.aread()

        async def fetch(url: str) -> Fetched | None:
            try:
                answer = await self._transport.handle_async_request(_question(request, url))
                try:
                    body = bytearray()
                    async for chunk in answer.aiter_bytes():
                        body += _bounded(chunk, body)
                finally:
                    await answer.aclose()
                return Fetched(answer.status_code, bytes(body))
            except Exception:  # noqa: BLE001 - whatever the transport raises, the server could not tell
                return None

        await self.memory.observe_async(self._exchange(sent, fields, response), fetch)
        return response

    async def aclose(self) -> None:
        """Close the transport that does the work."""
        await self._transport.aclose()

    async def __aenter__(self) -> "AsyncMemoryTransport":
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._transport.__aexit__(*exception)


def _origin(request: Any) -> str:
    url = request.url
    default = {"http": 80, "https": 443}.get(url.scheme)
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}:{url.port or default}"


def _question(request: Any, url: str) -> Any:
    """A question to the server that a request went to: with its credentials and its time-outs, and without its body."""
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if not name.lower().startswith(_OF_THE_BODY)
    ]
    timeout = request.extensions.get("timeout") or dict.fromkeys(("connect", "read", "write", "pool"), 5.0)
    return type(request)("GET", url, headers=headers, extensions={"timeout": timeout})


def _bounded(chunk: bytes, before: bytearray) -> bytes:
    if len(before) + len(chunk) > _LARGEST_ANSWER:
        raise ValueError("the answer is too large")
    return chunk


def _is_watched(headers: Mapping[str, str]) -> bool:
    """Whether a body is read for its contract: JSON of a known and moderate length. Streams are left alone."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    length = headers.get("content-length", "")
    return media_type.endswith("json") and length.isdigit() and int(length) <= _LARGEST_WATCHED


def _json_object(headers: Mapping[str, str], content: bytes) -> Mapping[str, Any] | None:
    if "json" not in headers.get("content-type", ""):
        return None
    try:
        fields = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _with_fields(request: Any, amended: Amended) -> Any:
    if not amended.applied:
        return request
    headers = [
        (name, value) for name, value in request.headers.multi_items() if name.lower() != "content-length"
    ]
    content = msgspec.json.encode(amended.request)
    return type(request)(
        request.method, request.url, headers=headers, content=content, extensions=request.extensions
    )
