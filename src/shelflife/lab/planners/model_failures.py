"""Why a model gave no answer, in one sentence that never holds a key."""

import os
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

__all__ = ["AskedModel", "explained", "is_unreachable", "refuses", "silence"]

_EXTRAS = {"openai": "models", "anthropic": "anthropic", "google-genai": "google"}
_LONGEST_QUOTE = 200
_SHORTEST_SECRET = 8
_BAD_REQUEST, _NOT_FOUND, _TOO_MANY, _SERVER_ERROR = 400, 404, 429, 500


class AskedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of whom, for the sentence."""

    model: str
    base_url: str | None
    api_key: str | None
    timeout_s: int
    tries: int
    max_tokens: int


def silence(asked: AskedModel, text: str, stop_reason: str) -> str | None:
    """Why an output holds no answer; None when it holds one."""
    if stop_reason == "content_filter":
        return f"{asked.model} withheld its answer (content filter)"
    if stop_reason == "model_length":
        return f"the conversation is longer than {asked.model} can read"
    if text.strip():
        return None
    if stop_reason == "max_tokens":
        return (
            f"{asked.model} used up its {asked.max_tokens} tokens before it came to an answer; allow it more"
        )
    return f"{asked.model} gave an empty answer"


def explained(asked: AskedModel, error: BaseException) -> str:
    """What went wrong, as one sentence for people."""
    errors = list(_chain(error))
    name = asked.model
    for one in errors:
        if type(one).__name__ == "PrerequisiteError":
            return _missing(asked, _plain(str(getattr(one, "message", one))))
    if is_unreachable(error):
        host = urlsplit(asked.base_url or "").netloc.rpartition("@")[2]
        return f"{name} cannot be reached: nobody answers" + (f" at {host}" if host else "")
    is_exhausted = type(error).__name__ == "RetryError"
    tries = _tries(asked.tries) if is_exhausted else "and trying again would not help"
    status = _status(errors)
    if status is not None:
        return _refused(asked, status, tries, _quoted(asked, errors))
    if any("timeout" in type(one).__name__.lower() for one in errors):
        return f"{name} did not answer within {asked.timeout_s} s, {tries}"
    if "/" not in name:
        return f"a model is named by its provider and its name, as in openai/gpt-5-mini, and {name!r} is not"
    if isinstance(error, ValueError) and "not recognized" in str(error):
        return (
            f"there is no provider {name.partition('/')[0]!r}; there are anthropic, openai, google, deepseek and others,"
            " and openai-api/<service>/<model> for any address that speaks OpenAI's API"
        )
    if any("connect" in type(one).__name__.lower() for one in errors):
        return f"the connection to {name} broke, {tries}"
    return f"{name} cannot be asked: {_quoted(asked, errors)}"


def is_unreachable(error: BaseException) -> bool:
    """Whether nobody listens at the address, so that no retry would help."""
    return any(isinstance(one, ConnectionRefusedError | socket.gaierror) for one in _chain(error))


def refuses(error: BaseException, parameter: str) -> bool:
    """Whether the vendor refuses a request on account of a parameter."""
    errors = list(_chain(error))
    return _status(errors) == _BAD_REQUEST and any(parameter in str(one) for one in errors)


def _tries(count: int) -> str:
    return "in one try" if count == 1 else f"in {count} tries"


def _missing(asked: AskedModel, message: str) -> str:
    """What a provider lacks before it can be asked at all."""
    package = re.search(r"pip install (?:--upgrade )?([\w-]+)", message)
    if package:
        extra = _EXTRAS.get(package[1])
        wanted = f"'shelflife[{extra}]'" if extra else package[1]
        return f"{asked.model} needs the package {package[1]}: pip install {wanted}"
    variable = re.search(r"\b[A-Z][A-Z0-9_]*_(API_KEY|BASE_URL)\b", message)
    if variable:
        need = "a key: set" if variable[1] == "API_KEY" else "an address: give its base URL or set"
        return f"{asked.model} needs {need} {variable[0]}"
    return f"{asked.model} cannot be asked: {message}"


def _refused(asked: AskedModel, status: int, tries: str, quoted: str) -> str:
    """What a status of the vendor means."""
    match status:
        case 401 | 403:
            return f"{asked.model} refuses the key ({status}); check that it is right and may use this model"
        case 404:
            return f"{asked.model} is not known there ({_NOT_FOUND}): {quoted}"
        case 429:
            return f"{asked.model} limits the rate ({_TOO_MANY}), {tries}: {quoted}"
        case _ if status >= _SERVER_ERROR:
            return f"{asked.model} failed ({status}), {tries}: {quoted}"
        case _:
            return f"{asked.model} refuses the request ({status}): {quoted}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those it came from, the outermost first."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        last_attempt: Any = getattr(one, "last_attempt", None)
        if last_attempt is not None:
            waiting.append(last_attempt.exception())
        waiting += [one.__cause__, one.__context__, getattr(one, "os_error", None)]
        waiting += getattr(one, "exceptions", ())


def _status(errors: list[BaseException]) -> int | None:
    """The first HTTP status that one of the errors bears."""
    for one in errors:
        for name in ("status_code", "code"):
            status = getattr(one, name, None)
            if isinstance(status, int) and status >= _BAD_REQUEST:
                return status
    return None


def _quoted(asked: AskedModel, errors: list[BaseException]) -> str:
    """What the vendor says, short, on one line, and without a key."""
    said = next((text for text in map(_said, errors) if text), "no reason was given")
    secrets = [value for name, value in os.environ.items() if name.endswith(("_KEY", "_TOKEN"))]
    for secret in (*secrets, asked.api_key or ""):
        if len(secret) >= _SHORTEST_SECRET:
            said = said.replace(secret, "…")
    return said if len(said) <= _LONGEST_QUOTE else f"{said[:_LONGEST_QUOTE]}…"


def _said(error: BaseException) -> str:
    """The message within the vendor's own envelope, where there is one."""
    if type(error).__name__ in ("RetryError", "ModelGenerateError"):
        return ""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error")
        message = inner.get("message") if isinstance(inner, dict) else body.get("message")
        if isinstance(message, str):
            return _plain(message)
    return _plain(str(getattr(error, "message", None) or error))


def _plain(text: str) -> str:
    """On one line, without rich's markup."""
    return " ".join(re.sub(r"\[/?[a-z ]+\]", "", text).split())
