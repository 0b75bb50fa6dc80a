"""How often a request is sent, seen from above: what sends it may do so again when an answer gets lost.

Whoever copies the request leaves the count at 0, and then it is not known.
"""

from functools import cache
from typing import Any

__all__ = ["counting_in"]


class _Counting:
    """The body of a request, which counts how often it is read, to be sent."""

    sent_count = 0

    def __iter__(self) -> Any:
        self.sent_count += 1
        return super().__iter__()  # type: ignore[misc] # of the library

    def __aiter__(self) -> Any:
        self.sent_count += 1
        return super().__aiter__()  # type: ignore[misc] # of the library


@cache
def counting_in(library: Any) -> Any:
    """The class of such a body in a library, which looks for its own."""
    return type("_Counting", (_Counting, library.ByteStream), {})
