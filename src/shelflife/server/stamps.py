"""What a response carries of a state, in the form that goes out: written once for all responses of that state."""

from collections.abc import Sequence
from functools import cached_property

import msgspec

__all__ = ["NO_STAMP", "Stamp", "encoded"]


class Stamp(msgspec.Struct, frozen=True, dict=True):
    """What a response carries, encoded once."""

    members: bytes
    """The members as they stand in a JSON object, without the braces."""

    headers: list[tuple[str, str]]
    """The same for a response whose body is left alone."""

    beside: list[tuple[str, str]] = []
    """Headers that go out in either case."""

    is_compact: bool = False
    """Whether suggestions beside it are written shorter."""

    is_no_news: bool = False
    """Whether it says only what the client has named. Then it is needed where there is a suggestion, which must name its position."""

    ending: bytes = b""
    """The members after others of an object, to its end."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "ending", b"," + self.members + b"}")

    @cached_property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """`headers` as they go out."""
        return encoded(self.headers)

    @cached_property
    def raw_beside(self) -> list[tuple[bytes, bytes]]:
        """`beside` as they go out."""
        return encoded(self.beside)


NO_STAMP = Stamp(b"", [])


def encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers of ours, as they go out."""
    return [(name.lower().encode(), value.encode()) for name, value in headers]
