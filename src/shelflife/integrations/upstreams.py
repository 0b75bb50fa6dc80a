"""An API behind a proxy: how it is reached, which requests are handed on to it, and how they are written."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from shelflife.errors import ShelflifeError
from shelflife.extras import needing
from shelflife.integrations.stamping import Headers

with needing("httpx2"):
    import httpx2

__all__ = [
    "NO_WEBSOCKETS",
    "Broken",
    "Upstream",
    "end_to_end",
    "fields_of",
    "headers_on",
    "let_go",
    "why_refused",
]

_log = logging.getLogger("shelflife")

NO_WEBSOCKETS = (501, "this proxy does not hand websockets on; connect to the API itself")

_HOPS = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
_REWRITTEN = frozenset(b"host expect forwarded x-forwarded-for x-forwarded-host x-forwarded-proto".split())
_OTHER_SERVER = re.compile(rb"/\t*[/\\]")
"""How a place begins that names a server, as browsers read it too."""

_GONE = "the API behind this proxy cannot be reached"
_SLOW = "the API behind this proxy has not answered in time"
_ODD = "the API behind this proxy has answered with a status that is none of HTTP"
_NOT_WRITTEN = "the request has a header or a length that cannot be handed on in HTTP"
_CONNECT_S = 10.0


class Broken(ShelflifeError):
    """The API has not answered: the status and the sentence for it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Upstream:
    """The API, and how it is reached: no redirects, no cookies, no settings of the environment."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._url = httpx2.URL(address.rstrip("/"))
        self._prefix = self._url.raw_path.rstrip(b"/")
        self.authority = self._url.netloc
        self._timeout = {
            "connect": min(_CONNECT_S, timeout_s),
            "read": timeout_s,
            "write": timeout_s,
            "pool": timeout_s,
        }
        self._transport: httpx2.AsyncHTTPTransport | None = None

    async def answer(
        self, method: str, target: bytes, headers: Headers, body: AsyncIterator[bytes] | bytes | None
    ) -> httpx2.Response:
        """What it answers, as far as its headers; `Broken` when it does not."""
        if self._transport is None:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
            self._transport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)
        # The very bytes of the target: whoever writes a path in another way may mean another operation.
        extensions = {"timeout": self._timeout, "target": self._prefix + target}
        request = httpx2.Request(
            method,
            self._url,
            headers=[(b"host", self.authority), *headers],
            content=body,
            extensions=extensions,
        )
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.TimeoutException as error:
            raise Broken(504, _SLOW) from error
        except httpx2.LocalProtocolError as error:
            raise Broken(400, _NOT_WRITTEN) from error
        except httpx2.TransportError as error:
            _log.warning("%s: %s", _GONE, error)
            raise Broken(502, _GONE) from error
        if not 200 <= response.status_code < 600:
            await response.aclose()
            raise Broken(502, _ODD)
        return response

    def own_path(self, location: bytes) -> bytes:
        """A place to which it redirects, as clients of the proxy find it."""
        for own in (str(self._url).rstrip("/").encode(), self._prefix):
            rest = location[len(own) :]
            if own and location.startswith(own) and rest[:1] in (b"", b"/", b"?"):
                # Two slashes would lead to another server. A client drops the dot, and keeps the path.
                begin = b"/." if _OTHER_SERVER.match(rest) else b"" if rest.startswith(b"/") else b"/"
                return begin + rest
        return location

    async def close(self) -> None:
        """Let go of all connections."""
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None


async def let_go(response: httpx2.Response) -> None:
    """Close what the API answers. When the client leaves just then, it is closed all the same: the pool would keep it for ever."""
    await asyncio.shield(response.aclose())


def headers_on(scope: Mapping[str, Any]) -> Headers:
    """The headers of a request as they go on: without those of this hop, and with what is known of the hop before."""
    client, host = scope.get("client"), b""
    forwarded: dict[bytes, list[bytes]] = {b"forwarded": [], b"x-forwarded-for": []}
    for name, value in scope["headers"]:
        if name in forwarded:
            forwarded[name].append(value.strip(b" \t"))
        elif name == b"host":
            host = value.strip(b" \t")
    address = (client[0] if client else "unknown").encode()
    node = b'"[%b]"' % address if b":" in address else address
    scheme = scope.get("scheme", "http").encode()
    forwarded[b"forwarded"].append(b'for=%b;host="%b";proto=%b' % (node, host.replace(b'"', b""), scheme))
    forwarded[b"x-forwarded-for"].append(address)
    told = {b"x-forwarded-host": [host], b"x-forwarded-proto": [scheme], **forwarded}
    own = [one for one in end_to_end(scope["headers"]) if one[0] not in _REWRITTEN]
    return own + [(name, b", ".join(values)) for name, values in told.items()]


def why_refused(scope: Mapping[str, Any], target: bytes) -> tuple[int, str] | None:
    """The status and the sentence for a request that is not handed on."""
    if scope["method"] == "CONNECT" or not target.startswith(b"/"):
        return 400, "this proxy hands on requests for the API behind it, and for no other server"
    segments = re.split(rb"[/\\]", unquote_to_bytes(target))
    if any(segment.partition(b";")[0] in (b".", b"..") for segment in segments):
        return 400, "a path with the segments . or .. is not handed on"
    if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
        return NO_WEBSOCKETS
    return None


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers without those that are for one hop alone, and without the contract's: those are ours."""
    # White space around a value is no part of it, and some servers leave it there.
    pairs = [(name.lower(), value.strip(b" \t")) for name, value in headers]
    named = {
        one.strip().lower() for name, value in pairs if name == b"connection" for one in value.split(b",")
    }
    return [
        (name, value)
        for name, value in pairs
        if name not in _HOPS and name not in named and not name.startswith(b"contract-")
    ]


def fields_of(body: bytes, *, is_form: bool) -> dict[str, Any] | None:
    """What policies are shown of a body: the object that it is, or the fields of a form; None when it is neither."""
    with suppress(ValueError, RecursionError):
        fields = _nested(parse_qsl(body.decode(), keep_blank_values=True)) if is_form else json.loads(body)
        return fields if isinstance(fields, dict) else None
    return None


def _nested(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form, whose names may lead into others: `items[0][price]`. A list is a dictionary by its numbers."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        first, *rest = re.findall(r"[^\[\]]+", name) or [name]
        at, path = fields, [first, *rest]
        for step in path[:-1]:
            inner = at.setdefault(step, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{name} is a value and has fields")
            at = inner
        at[path[-1]] = value
    return fields
