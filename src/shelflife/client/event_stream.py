"""Server-sent events, from bytes as they come in. Pure, and within bounds.

It is our own because the parsers of httpx2 and httpx-sse do not tell of comments, take text that was inflated without bound, and hold a line that ends
in CR back until more comes.
"""

import re
from collections.abc import Iterator

from shelflife.contract import BadMessage

__all__ = ["EventStream"]

_LARGEST_EVENT = 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventStream:
    """What a stream has told so far. Lines end in LF, CRLF or CR, as the standard says, and nowhere else."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data = bytearray()
        self._is_after_cr = False
        self._to_skip = _BYTE_ORDER_MARK

    def told(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that is complete, and nothing for each comment; `BadMessage` when an event is too long.

        Of an event only its data counts. One that is not complete when the stream ends is none.
        """
        if self._is_after_cr:
            chunk = chunk.removeprefix(b"\n")
        self._is_after_cr = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(chunk)
        self._lengthen(first)
        for other in others:
            yield from self._ended()
            self._lengthen(other)

    def _lengthen(self, part: bytes) -> None:
        self._line += part
        if len(self._line) + len(self._data) > _LARGEST_EVENT:
            raise BadMessage(f"an event of the feed is longer than {_LARGEST_EVENT} bytes")

    def _ended(self) -> Iterator[bytes]:
        line = bytes(self._line).removeprefix(self._to_skip)
        self._line, self._to_skip = bytearray(), b""
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data += value.removeprefix(b" ") + b"\n"
        elif line and not name:
            yield b""
        elif not line and self._data:
            data, self._data = bytes(self._data[:-1]), bytearray()
            yield data
