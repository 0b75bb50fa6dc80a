"""Where something is kept, in one word: a file, or the address of an engine. What cannot be read is not repeated: it may be a password."""

import re
from os import PathLike, fspath
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["POSTGRES", "Place", "place_of", "split_address"]

POSTGRES = ("postgresql", "postgres")

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"
_MEANT_AS_ADDRESS = r"(?s)\s*[A-Za-z][A-Za-z0-9+.-]+:.*@"
"""A file is hardly called so, and an address with a slash too few is."""


class Place(NamedTuple):
    """What a word says."""

    scheme: str
    """Empty for a file."""

    name: str
    """The path of the file, or the address."""


def place_of(where: str | PathLike[str], what: str, schemes: tuple[str, ...], shown: str) -> Place:
    """The place that a word names. `ValueError` when `what` cannot be there; `shown` says with what its address may begin."""
    scheme, separator, rest = fspath(where).partition("://")
    if not separator and not re.match(_MEANT_AS_ADDRESS, scheme):
        return Place("", scheme)
    scheme = scheme.strip().lower()
    if separator and scheme in schemes:
        return Place(scheme, f"{scheme}://{rest}")
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return Place("", unquote(rest[1:]))
    named = f"{scheme}://" if separator and re.fullmatch(_SCHEME, scheme) else "this"
    raise ValueError(
        f"{named} is not where a {what} can be; give a file, or an address that begins with {shown}"
    )


def split_address(url: str) -> SplitResult:
    """The parts of an address. `ValueError` where a part may be one of a password that is not escaped."""
    address = urlsplit(url)
    after = f"{address.path}{address.query}"
    if address.netloc.count("@") > 1 or "@" in after or "#" in url:
        raise ValueError
    return address
