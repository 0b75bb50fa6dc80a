"""A memory behind an HTTP client: a transport for `httpx2`, and for `httpx`, that watches every response.

Nothing else in the user's code changes:

    client = httpx2.Client(transport=MemoryTransport(Memory()))

The transports wrap another one and hand on whatever library's requests and responses they are given. A JSON response is read ahead, up to
1 MB, and put back as it came; other responses are not touched. Whatever goes wrong with the memory is logged and never
reaches the caller: the server may have carried the request out.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any

from shelflife.client.entries import Entry, digest_of
from shelflife.client.guard import Amended, Guard
from shelflife.client.memory import Exchange, Fetched, Memory
from shelflife.client.origins import origin_of
from shelflife.client.preconditions import precondition_for
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER, has_gone_stale
from shelflife.extras import needing
from shelflife.integrations.reading_ahead import library_of, read_ahead, read_ahead_async

__all__ = ["AsyncMemoryTransport", "MemoryTransport"]

_log = logging.getLogger("shelflife.memory")

_LARGEST_WATCHED = 1024 * 1024
_LARGEST_ANSWER = 8 * 1024 * 1024
_EXTENSION = "shelflife"
_MOST_REPAIRS = 2
_BODY_NOT_UNDERSTOOD = " with a body that is no JSON object"
_UNREAD = b"{"
"""Stands for a body that was not read to its end: malformed, which a memory tells and takes as a reason for doubt."""

_VOUCHING = re.compile(r"(?i)[^:]*(digest|signature|content-md5|content-sha256)|authorization: .*signature=")
_NOT_OF_A_QUESTION = re.compile(
    r"(?i)content-|transfer-encoding|expect|if-|range|idempotency-key|prefer|accept-encoding|digest|signature|contract-"
)
_LONGEST_WAITS_S = {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 1.0}
"""How long a question may take; an open stream may hold the only connection of the pool."""

OperationOf = Callable[[Any], str]
"""Names the operation of a request; by default its method and path, and a digest of its query where it has one."""


def method_and_target(request: Any) -> str:
    """The operation of a request whose path holds no identifiers. Of a query, which may hold a key, only a digest is kept."""
    query = f"?{digest_of(request.url.query.decode())[:12]}" if request.url.query else ""
    return f"{request.method} {request.url.path}{query}"


class _HandsOff(Guard, frozen=True, kw_only=True):
    """Allows nothing, for a reason that lies in the request."""

    why: str

    def refusal(self, entry: Entry) -> str | None:
        return self.why


class _Watching:
    """What both transports share: everything but waiting."""

    _default_transport: str

    def __init__(
        self,
        memory: Memory,
        transport: Any = None,
        *,
        guard: Guard | None = None,
        operation: OperationOf = method_and_target,
        compact: bool = False,
        conditional: bool = False,
    ) -> None:
        """Watch `transport`, by default one of httpx2's; with a `guard`, amend requests too.

        When `conditional`, an amended request asks the server not to carry it out if something the fix rests on has moved; when that is so,
        it is amended anew and sent again, before the caller sees anything; where that is so time and again, it goes out as it came.
        When `compact`, requests say which state the memory knows, and a server that can leaves out of its responses what follows
        from that: most of the contract's bytes.
        """
        if transport is None:
            with needing("httpx"):
                import httpx2

            transport = getattr(httpx2, self._default_transport)()
        self.memory = memory
        self._transport = transport
        self._guard = guard
        self._operation = operation
        self._is_compact = compact
        self._is_conditional = conditional

    def _prepared(self, request: Any, repair_count: int) -> tuple[Any, Mapping[str, Any] | None]:
        """The request to send, amended and with its epoch where that is asked for, and its fields; None when they are not understood."""
        sent, fields = self._amended(request, repair_count)
        if self._is_compact and EPOCH_HEADER not in sent.headers:
            epoch = self.memory.epoch(_origin(request))
            if epoch is not None:
                sent.headers[EPOCH_HEADER] = epoch
        return sent, fields

    def _to_check(self, request: Any) -> tuple[str, str, Mapping[str, Any]] | None:
        """The request that is to be amended, as the memory knows it; None when nothing of the server is suspect, or it goes out as it is."""
        if self._guard is None or not self.memory.has_suspects(_origin(request)):
            return None
        fields = _fields(request)
        if fields is None or _why_hands_off(request) is not None:
            return None
        return _origin(request), self._operation(request), fields

    def _amended(self, request: Any, repair_count: int) -> tuple[Any, Mapping[str, Any] | None]:
        fields = None
        try:
            fields = _fields(request)
            if fields is None or self._guard is None:
                return request, fields
            why = _why_hands_off(request)
            guard = self._guard if why is None else _HandsOff(why=why)
            epoch = None
            if self._is_conditional:
                epoch = self.memory.epoch(_origin(request))  # first: what moves from now on counts
                if epoch is None or repair_count == _MOST_REPAIRS:
                    return request, fields
            amended = self.memory.amend(_origin(request), self._operation(request), fields, guard)
            sent = _with_fields(request, amended)
            if epoch is not None and amended.applied:
                entries = [applied.entry for applied in amended.applied]
                brief = self._is_compact and repair_count == 0
                precondition = precondition_for(epoch, entries, fields, brief=brief)
                sent.headers[PRECONDITION_HEADER] = precondition.header
            request.extensions[_EXTENSION] = sent.extensions[_EXTENSION] = amended
            return sent, amended.request
        except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
            _log.warning("a request could not be amended and is sent as it is", exc_info=True)
            return request, fields

    def _exchange(
        self, request: Any, fields: Mapping[str, Any] | None, response: Any, body: bytes | None
    ) -> Exchange:
        operation = self._operation(request)
        if fields is None and _content(request) != b"":
            operation += _BODY_NOT_UNDERSTOOD  # so that nothing is taken for the fix of an empty request
        return Exchange(
            origin=_origin(request),
            operation=operation,
            request=fields or {},
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=_UNREAD if body is None else body,
            epoch=request.headers.get(EPOCH_HEADER),
            conditional=PRECONDITION_HEADER in request.headers,
        )


class MemoryTransport(_Watching):
    """Watches the responses of another transport, and amends requests when it is given a guard."""

    _default_transport = "HTTPTransport"

    def handle_request(self, request: Any) -> Any:
        for repair_count in range(_MOST_REPAIRS):
            response, is_stale = self._sent(request, repair_count)
            if not is_stale:
                return response
            response.close()
        return self._sent(request, _MOST_REPAIRS)[0]

    def _sent(self, request: Any, repair_count: int) -> tuple[Any, bool]:
        self._check(request)
        sent, fields = self._prepared(request, repair_count)
        response = self._transport.handle_request(sent)
        is_stale = PRECONDITION_HEADER in sent.headers and has_gone_stale(
            response.status_code, response.headers
        )
        body = read_ahead(response, _LARGEST_WATCHED) if _is_json(response.headers) else b""

        if is_stale:
            fields = _fields(request)  # what the fixes in the answer are for
        try:
            self.memory.observe(self._exchange(sent, fields, response, body), self._asker(request))
        except Exception:  # noqa: BLE001 - the server has carried the request out
            _log.warning("a response could not be observed", exc_info=True)
        return response, is_stale

    def _check(self, request: Any) -> None:
        try:
            to_check = self._to_check(request)
            if to_check is not None:
                ask = self._asker(request)
                self.memory.check(*to_check, ask, ask, guard=self._guard)
        except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
            _log.warning("what is remembered for a request could not be checked", exc_info=True)

    def _asker(self, request: Any) -> Callable[..., Fetched | None]:
        """How the memory asks the server that a request goes to."""

        def ask(url: str, content: bytes | None = None) -> Fetched | None:
            try:
                answer = self._transport.handle_request(_question(request, url, content))
                try:
                    told = read_ahead(answer, _LARGEST_ANSWER)
                finally:
                    answer.close()
                return None if told is None else Fetched(answer.status_code, told)
            except Exception:  # noqa: BLE001 - whatever the transport raises, the server could not tell
                return None

        return ask

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
        for repair_count in range(_MOST_REPAIRS):
            response, is_stale = await self._sent(request, repair_count)
            if not is_stale:
                return response
            await response.aclose()
        return (await self._sent(request, _MOST_REPAIRS))[0]

    async def _sent(self, request: Any, repair_count: int) -> tuple[Any, bool]:
        await self._check(request)
        sent, fields = self._prepared(request, repair_count)
        response = await self._transport.handle_async_request(sent)
        is_stale = PRECONDITION_HEADER in sent.headers and has_gone_stale(
            response.status_code, response.headers
        )
        body = await read_ahead_async(response, _LARGEST_WATCHED) if _is_json(response.headers) else b""

        if is_stale:
            fields = _fields(request)
        try:
            await self.memory.observe_async(
                self._exchange(sent, fields, response, body), self._asker(request)
            )
        except Exception:  # noqa: BLE001 - the server has carried the request out
            _log.warning("a response could not be observed", exc_info=True)
        return response, is_stale

    async def _check(self, request: Any) -> None:
        try:
            to_check = self._to_check(request)
            if to_check is not None:
                ask = self._asker(request)
                await self.memory.check_async(*to_check, ask, ask, guard=self._guard)
        except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
            _log.warning("what is remembered for a request could not be checked", exc_info=True)

    def _asker(self, request: Any) -> Callable[..., Awaitable[Fetched | None]]:
        """How the memory asks the server that a request goes to."""

        async def ask(url: str, content: bytes | None = None) -> Fetched | None:
            try:
                answer = await self._transport.handle_async_request(_question(request, url, content))
                try:
                    told = await read_ahead_async(answer, _LARGEST_ANSWER)
                finally:
                    await answer.aclose()
                return None if told is None else Fetched(answer.status_code, told)
            except Exception:  # noqa: BLE001 - whatever the transport raises, the server could not tell
                return None

        return ask

    async def aclose(self) -> None:
        """Close the transport that does the work."""
        await self._transport.aclose()

    async def __aenter__(self) -> "AsyncMemoryTransport":
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._transport.__aexit__(*exception)


def _origin(request: Any) -> str:
    """The server that a request means: on a machine with several, its `Host` header says which."""
    host = request.headers.get("host") or request.url.netloc.decode()
    return origin_of(f"{request.url.scheme}://{host}")


def _question(request: Any, url: str, content: bytes | None) -> Any:
    """A question to the server that a request went to: with its credentials, without its body, and not for long."""
    headers = [
        (name, value) for name, value in request.headers.multi_items() if not _NOT_OF_A_QUESTION.match(name)
    ]
    given = request.extensions.get("timeout") or {}
    timeout = {what: min(given.get(what) or longest, longest) for what, longest in _LONGEST_WAITS_S.items()}
    headers.append(("accept-encoding", "gzip, deflate"))
    if content is not None:
        headers.append(("content-type", "application/json"))
    return type(request)(
        "GET" if content is None else "POST",
        request.url.join(url.removeprefix(_origin(request))),
        headers=headers,
        content=content,
        extensions={"timeout": timeout},
    )


def _is_json(headers: Mapping[str, str]) -> bool:
    """Whether a body is one JSON value; streams of them, and of events, are left alone."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _content(request: Any) -> bytes | None:
    """The body of a request where it is in memory anyway; None for an upload that is still to be read."""
    is_in_memory = isinstance(request.stream, library_of(request).ByteStream)
    content: bytes | None = request.read() if is_in_memory else None
    return content


def _fields(request: Any) -> dict[str, Any] | None:
    content = _content(request) if _is_json(request.headers) else None
    if not content or len(content) > _LARGEST_WATCHED:
        return None
    try:
        fields = json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _why_hands_off(request: Any) -> str | None:
    """Why the body of a request must go out as it is; None when it may be written anew."""
    if any(_VOUCHING.match(f"{name}: {value}") for name, value in request.headers.items()):
        return "a header of the request vouches for its body as it is"
    try:
        json.loads(request.content, object_pairs_hook=_members_once, parse_float=_exact)
    except ValueError:
        return "the request has members or numbers that would not survive being written anew"
    return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _members_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    once = dict(members)
    if len(once) < len(members):
        raise ValueError("a member is there twice")
    return once


def _exact(digits: str) -> float:
    number = float(digits)
    if Decimal(repr(number)) != Decimal(digits):
        raise ValueError(f"{digits} has too many digits")
    return number


def _with_fields(request: Any, amended: Amended) -> Any:
    if not amended.applied:
        return request
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() not in ("content-length", "transfer-encoding")
    ]
    content = json.dumps(amended.request, separators=(",", ":")).encode()
    return type(request)(
        request.method, request.url, headers=headers, content=content, extensions=request.extensions
    )
