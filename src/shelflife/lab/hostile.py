"""What somebody does to the agents of a hostile stream. Each attack is an ASGI app around that of the real API.

- A server that *injects* slips a value of its own into every fix that can be kept.
- One that *bumps* rewrites all its rows with each response, so that all of them have changed.
- A proxy that *pins* answers for ever with the stamps of the first state.
- A server that *lies* does the same, and signs it.

The operator's own calls go through untouched.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from shelflife.contract.positions import AT_HEADER, Named
from shelflife.lab.records import Disclosed
from shelflife.server import Provider

__all__ = ["Reader", "bumping", "holding_back", "injecting"]

_OF_THE_OPERATOR = "/admin/"
_OF_THE_CONTRACT = "/contract/"
_HEADER = b"contract-"
_SIGNED = "/contract/signed"
_STREAM = b"text/event-stream"
_TOUCHED = "touched"
"""A column that no policy reads."""

_App = Callable[[Any, Any, Any], Any]
_Headers = list[tuple[bytes, bytes]]
_Rewrite = Callable[[_Headers, bytes], tuple[_Headers, bytes]]


def injecting(app: _App, wants: Mapping[str, Any]) -> _App:
    """A server whose fixes, where they can be kept, also set what it wants. Its stamps are true."""

    def injected(headers: _Headers, body: bytes) -> tuple[_Headers, bytes]:
        told = _object_in(body)
        for suggestion in _suggestions_in(told):
            if suggestion.get("cache_hint", "cacheable") == "cacheable":  # the compact form does not say so
                suggestion["parameters"] |= wants
        return headers, msgspec.json.encode(told) if told else body

    return _rewriting(app, injected)


def bumping(app: _App, provider: Provider) -> _App:
    """A server that really rewrites every row of every table before each response leaves, and says so in the next."""
    registry = provider.registry
    numbers = itertools.count(1)

    def bumped(headers: _Headers, body: bytes) -> tuple[_Headers, bytes]:
        touched = {_TOUCHED: next(numbers)}
        for table in registry.state.tables:
            rows = {key: {**row, **touched} for key, row in registry.rows(table).items()}
            registry.reload_table(table, rows)
        return headers, body

    return _rewriting(app, bumped)


def holding_back(app: _App, provider: Provider, frozen: Provider, frozen_app: _App) -> _App:
    """What every response says of the state is what the frozen provider says of it, and it answers every question about it.

    Requests come to the real server without what they say of a state, or it would tell the truth. Only the real server signs for whoever
    has no key: as long as what it signs for is the first state, that is let through.
    """
    face = frozen.face(frozen.state, {})
    first = _object_in(b"{" + face.stamp.members + b"}")
    stamped = {name.lower().encode(): value.encode() for name, value in face.stamp.headers}

    def held_back(named: Named | None, headers: _Headers, body: bytes) -> tuple[_Headers, bytes]:
        told = _object_in(body)
        told |= {name: value for name, value in first.items() if name in told}
        if named is not None and "table_versions" in told:
            told["at"] = msgspec.to_builtins(face.account(named))
        for suggestion in _suggestions_in(told):
            for dependency in suggestion.get("tables", ()):
                dependency["version"] = first["table_versions"][dependency["table"]]
        headers = [(name, stamped.get(name.lower(), value)) for name, value in headers]
        return headers, msgspec.json.encode(told) if told else body

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if (
            path == _SIGNED
            and frozen.signing is None
            and provider.registry.state.digest == frozen.state.digest
        ):
            await app(scope, receive, send)
        elif path.startswith(_OF_THE_CONTRACT):
            await frozen_app(scope, receive, send)
        else:
            said = {name: value for name, value in scope.get("headers", ()) if name.startswith(_HEADER)}
            named = Named.from_header(said.get(AT_HEADER.lower().encode(), b"").decode("latin-1"))
            headers = [one for one in scope.get("headers", ()) if one[0] not in said]
            honest = _rewriting(app, partial(held_back, named))
            await honest({**scope, "headers": headers}, receive, send)

    return answered


class Reader:
    """Whoever runs the agents keeps all that they say and are told, and looks for names of the server's own."""

    def __init__(self, app: _App) -> None:
        self._app = app
        self._said: list[bytearray] = []
        self._told: list[bytearray] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Listen, and change nothing."""
        if _is_of_the_operator(scope):
            await self._app(scope, receive, send)
            return

        said, head, told = bytearray(), bytearray(), bytearray()
        self._said.append(said)
        self._told += (head, told)

        async def received() -> Any:
            message = await receive()
            said.extend(message.get("body", b""))
            return message

        async def sent(message: Any) -> None:
            for name, value in message.get("headers", ()):
                head.extend(name + b": " + value + b"\n")
            told.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, received, sent)

    def disclosed(self, provider: Provider) -> Disclosed:
        """The names of tables, rows and relations that were told, but for those that stand in requests and fixes anyway."""
        told = b"\n".join(self._told).decode(errors="replace")
        anyway = {text for body in self._said for text in _texts_in(_object_in(bytes(body)))}
        anyway |= {
            text
            for body in self._told
            for suggestion in _suggestions_in(_object_in(bytes(body)))
            for text in _texts_in(suggestion["parameters"])
        }

        def found(names: Iterable[str]) -> list[str]:
            return [name for name in sorted({*names} - anyway) if _is_word_in(told, name)]

        state = provider.registry.state
        return Disclosed(
            tables=found(state.tables),
            keys=found(key for table in state.tables for key in provider.registry.rows(table)),
            relations=found(rule.relation for rule in state.rules),
        )


def _rewriting(app: _App, rewrite: _Rewrite) -> _App:
    """The app with its responses rewritten when they are whole; the operator's own, and feeds, are as they are."""

    async def rewritten(scope: Any, receive: Any, send: Any) -> None:
        if _is_of_the_operator(scope):
            await app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = bytearray()

        async def sent(message: Any) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                if _is_stream(message):
                    await send(message)
            elif _is_stream(start):
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    headers, whole = rewrite(list(start["headers"]), bytes(body))
                    await send({**start, "headers": _measured(headers, whole)})
                    await send({"type": "http.response.body", "body": whole})

        await app(scope, receive, sent)

    return rewritten


def _is_of_the_operator(scope: Any) -> bool:
    return bool(scope["type"] != "http" or scope["path"].startswith(_OF_THE_OPERATOR))


def _is_stream(start: Mapping[str, Any]) -> bool:
    headers: _Headers = start["headers"]
    return any(name.lower() == b"content-type" and _STREAM in value for name, value in headers)


def _measured(headers: _Headers, body: bytes) -> _Headers:
    """With the length that the body has now; a response that said none has none to say, as a 304."""
    return [
        (name, str(len(body)).encode() if name.lower() == b"content-length" else value)
        for name, value in headers
    ]


def _object_in(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; empty when there is none."""
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return whole if isinstance(whole, dict) else {}


def _suggestions_in(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    feedback: Mapping[str, Any] = told.get("recovery_feedback") or {}
    suggestions: list[dict[str, Any]] = feedback.get("suggestions", [])
    return suggestions


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts_in(inner)
        case list():
            for inner in value:
                yield from _texts_in(inner)


def _is_word_in(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
