"""A memory behind a session of `requests`: an adapter to be mounted. Nothing else in the user's code changes.

session.mount("https://api.example", MemoryAdapter(Memory()))
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from shelflife.client.channels import HTTP
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.running import Counted
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.extras import needing
from shelflife.integrations import messages
from shelflife.integrations.taking import takes
from shelflife.integrations.watching import BlockingWatching, Watched, at_once, method_and_target

with needing("requests"):
    from requests.adapters import BaseAdapter, HTTPAdapter
    from requests.models import PreparedRequest, Response
    from requests.structures import CaseInsensitiveDict
    from urllib3 import HTTPResponse

__all__ = ["MemoryAdapter"]

_PART = 65_536


class MemoryAdapter(BaseAdapter):  # type: ignore[misc] # it has no types where it is not installed
    """Watches the responses of another adapter, and amends requests as far as the guard allows.

    The options are those of the transports for httpx2. A response has what was done to its request in `shelflife`, and the request as it
    went out in `shelflife_sent`; its `request` stays as the session wrote it.
    """

    def __init__(
        self,
        memory: Memory,
        adapter: BaseAdapter | None = None,
        *,
        guard: Guard | None = HTTP.guard,
        operation: Callable[[messages.Request], str] = method_and_target,
        compact: bool = HTTP.compact,
        conditional: bool = HTTP.conditional,
    ) -> None:
        super().__init__()
        if adapter is not None:
            takes("a MemoryAdapter takes a Memory and an adapter to watch", (adapter, BaseAdapter))
        self.memory = memory
        self._adapter = HTTPAdapter() if adapter is None else adapter
        self._watching = _Watching(
            memory, self, guard=guard, operation=operation, compact=compact, conditional=conditional
        )

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        """Send a request, and let the memory watch."""
        outgoing = _Outgoing(self._adapter, request, arguments, options)
        seen = self._watching.sent_by(outgoing)
        response: Response = seen.of
        response.request, response.connection = request, self
        response.shelflife = outgoing.own.extensions.get("shelflife")
        response.shelflife_sent = outgoing.sent
        if isinstance(seen.stream, Watched):
            response.raw = _Raw(response.raw, seen.stream)
        return response

    def close(self) -> None:
        """Close the adapter that does the work."""
        self._adapter.close()


class _Watching(BlockingWatching[messages.Request, messages.Response]):
    def sent_by(self, outgoing: "_Outgoing") -> messages.Response:
        return at_once(self._handled(outgoing.own, outgoing))


class _Outgoing:
    """How one request of a session goes out, and the questions about it: by the same adapter, with the same settings."""

    def __init__(
        self,
        adapter: BaseAdapter,
        request: PreparedRequest,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        names = ("stream", "timeout", "verify", "cert", "proxies")
        self._options = dict(zip(names, arguments, strict=False)) | options
        self._adapter, self._request = adapter, request
        self.sent: PreparedRequest = request
        body, timeout = request.body, self._options.get("timeout")
        if isinstance(body, str):
            body = body.encode()
        connect_s, read_s = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        limits = {"connect": connect_s, "read": read_s} if not hasattr(timeout, "clone") else {}
        self.own = messages.Request(
            request.method,
            request.url,
            headers=request.headers.items(),
            stream=messages.ByteStream(body or b"") if isinstance(body, bytes | None) else body,
            extensions={"timeout": limits, "of": request},
        )
        """The request as the memory sees it."""

    def handle_request(self, request: messages.Request) -> messages.Response:
        """Send a request that the memory has written, its own or the session's."""
        options, sent = self._options, self._request
        if "of" not in request.extensions:
            limits = request.extensions["timeout"]
            options = options | {"stream": True, "timeout": (limits["connect"], limits["read"])}
            sent = PreparedRequest()
            sent.prepare(
                request.method, str(request.url), dict(request.headers.multi_items()), data=request.content
            )
        elif request is not self.own:
            sent = self._request.copy()
            sent.headers = CaseInsensitiveDict(request.headers.multi_items())
            if request.stream is not self.own.stream:
                sent.body = request.content
        if "of" in request.extensions:
            self.sent = sent
        response = self._sent(sent, request.stream, options)
        return messages.Response(
            response.status_code, response.headers.items(), _Body(response.raw), response
        )

    def _sent(self, sent: PreparedRequest, stream: Any, options: dict[str, Any]) -> Response:
        """Counts how often it is sent, if that matters: the adapter may be one that does it again."""
        counted = Counted(sent.headers.get(PRECONDITION_HEADER, ""))
        if counted:
            sent.headers[PRECONDITION_HEADER] = counted
        response = self._adapter.send(sent, **options)
        if isinstance(stream, messages.ByteStream):
            stream.sent_count = counted.sent_count
        return response


class _Body(messages.SyncByteStream):
    """The body of a response, decoded, as nobody but the memory reads it."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._raw.stream(_PART, decode_content=True))

    def close(self) -> None:
        if getattr(
            self._raw, "auto_close", True
        ):  # else the caller closes it, and may look at its end once more
            self._raw.close()
        self._raw.release_conn()


class _Raw:
    """What a response reads its body from. What the caller reads of it is shown to the memory once there is no more."""

    __slots__ = ("__weakref__", "_is_plain", "_raw", "_watched")

    def __init__(self, raw: Any, watched: Watched) -> None:
        self._raw, self._watched = raw, watched
        self._is_plain = not raw.headers.get("content-encoding")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # such as `decode_content` and `auto_close`, by which callers say how they want to read
        if name in _Raw.__slots__:
            super().__setattr__(name, value)
        else:
            setattr(self._raw, name, value)

    def stream(self, amt: int = _PART, decode_content: bool | None = None) -> Iterator[bytes]:
        return self._streamed(self._raw.stream(amt, decode_content=decode_content), decode_content)

    def read_chunked(self, amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        return self._streamed(self._raw.read_chunked(amt, decode_content=decode_content), decode_content)

    def _streamed(self, chunks: Iterator[bytes], decode_content: bool | None) -> Iterator[bytes]:
        while (chunk := self._next(partial(next, chunks, None))) is not None:
            self._keep(chunk, decode_content)
            yield chunk
        at_once(self._watched.end())

    __iter__ = HTTPResponse.__iter__

    def read(self, amt: int | None = None, decode_content: bool | None = None, **options: Any) -> bytes:
        read = partial(self._raw.read, amt, decode_content=decode_content, **options)
        return self._read(read, decode_content, is_all=amt is None or amt < 0, is_some=amt != 0)

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        return self._read(
            partial(self._raw.read1, amt, decode_content=decode_content), decode_content, is_some=amt != 0
        )

    def readline(self, size: int | None = -1) -> bytes:
        return self._read(partial(self._raw.readline, size), None, is_some=size != 0)

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        lines, length = [], 0
        while line := self.readline():
            lines.append(line)
            length += len(line)
            if 0 < (hint or 0) <= length:
                break
        return lines

    def readinto(self, buffer: Any) -> int:
        part = memoryview(buffer).cast("B")
        chunk = self.read(len(part))
        part[: len(chunk)] = chunk
        return len(chunk)

    def _read(
        self,
        read: Callable[[], Any],
        decode_content: bool | None,
        *,
        is_all: bool = False,
        is_some: bool = True,
    ) -> bytes:
        """The next part. Where nothing is left of what was asked for, that is the end."""
        chunk: bytes = self._next(read)
        self._keep(chunk, decode_content)
        if is_all or (is_some and not chunk):
            at_once(self._watched.end())
        return chunk

    def close(self) -> None:
        try:
            self._raw.close()
        finally:
            at_once(self._watched.leave())

    def _next(self, read: Callable[[], Any]) -> Any:
        """What is read next. Where it breaks off the caller gets no further, and nobody need close it."""
        try:
            return read()
        except BaseException:
            at_once(self._watched.leave())
            raise

    def _keep(self, chunk: bytes, decode_content: bool | None) -> None:
        if self._is_plain or (self._raw.decode_content if decode_content is None else decode_content):
            self._watched.keep(chunk)
        else:
            self._watched.give_up()
