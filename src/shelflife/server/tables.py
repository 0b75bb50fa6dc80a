"""Tables: named, versioned, immutable at a version, cheap to change."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from shelflife.contract.names import check_name, check_version, is_unicode, shown
from shelflife.contract.values import fault_in
from shelflife.extras import needing
from shelflife.server.delta import Delta, Row
from shelflife.server.errors import BadRow

with needing("server", "litestar", "flask", "django", "mcp", "fastmcp"):
    from rpds import HashTrieMap

__all__ = [
    "RowMap",
    "Table",
    "check_key",
    "clean_delta",
    "clean_rows",
    "content_of",
    "is_minted",
    "key_of",
    "minted_version",
]

_MINT_MARK = "~"
_MINTED_LENGTH = 12
MINTED_VERSION = re.compile(rf"{_MINT_MARK}[a-z2-7]{{{_MINTED_LENGTH}}}\Z")
"""A version that is made from the content. Nobody may choose one that looks like it."""

_DIGEST_SIZE = 32
_MODULUS: int = 256**_DIGEST_SIZE

_DEEPEST_ROW = 16
_LONGEST_KEY = 1024
_PLAIN = frozenset({str, int, bool, type(None)})

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class RowMap(Mapping[str, Row]):
    """The rows of a table: a plain dictionary that is never written to, under a persistent overlay.

    A change costs what it touches, a whole new content costs one dictionary, and snapshots share what they
    have in common. The rows themselves are shared too: they are for reading only.
    """

    __slots__ = ("_base", "_count", "_is_overlaid", "_overlay")

    def __init__(self, base: dict[str, Row]) -> None:
        self._base = base
        self._overlay: HashTrieMap[str, Row | None] = HashTrieMap()
        self._count = len(base)
        self._is_overlaid = False

    def get(self, key: str, default: Any = None) -> Any:
        if self._is_overlaid and key in self._overlay:
            row = self._overlay[key]
            return default if row is None else row
        return self._base.get(key, default)

    def __getitem__(self, key: str) -> Row:
        row: Row | None = self.get(key)
        if row is None:
            raise KeyError(key)
        return row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        overlay = self._overlay
        yield from (key for key in self._base if key not in overlay) if overlay else self._base
        yield from (key for key, row in overlay.items() if row is not None)

    def plain(self) -> Mapping[str, Row]:
        """The same rows for many look-ups: the dictionary itself where nothing lies over it."""
        return self.to_dict() if self._is_overlaid else self._base

    def to_dict(self) -> dict[str, Row]:
        """A plain dictionary of the same rows."""
        return Delta({}, dict(self._overlay.items())).applied_to(self._base)

    def after(self, delta: Delta) -> "RowMap":
        """These rows as the delta leaves them."""
        if (len(self._overlay) + len(delta)) * 2 > len(self._base):
            return RowMap(delta.applied_to(self.to_dict()))
        changed = RowMap(self._base)
        overlay, count = self._overlay, self._count
        for key, row in delta.after.items():
            overlay = overlay.insert(key, row)
            count += (row is not None) - (delta.before[key] is not None)
        changed._overlay, changed._count, changed._is_overlaid = overlay, count, True
        return changed


class Table:
    """A table at a version. Immutable; a change gives another."""

    __slots__ = ("_sorted_keys", "content", "given_versions", "name", "rows", "version")

    def __init__(
        self,
        name: str,
        rows: RowMap,
        version: str | None = None,
        *,
        content: int | None = None,
        given_versions: "HashTrieMap[str, int] | None" = None,
    ) -> None:
        """Without a version it has the one that is minted for its content."""
        self.name = check_name(name)
        self.rows = rows
        self.content = content_of(rows) if content is None else content
        """Names the content: the same for the same rows, wherever and in whatever order they were loaded."""
        self.version = minted_version(self.content) if version is None else check_version(version)
        given = given_versions or HashTrieMap()
        self.given_versions = given if is_minted(self.version) else given.insert(self.version, self.content)
        """Every version that somebody chose for a content of this table, with that content."""
        self._sorted_keys: tuple[str, ...] | None = None

    @property
    def sorted_keys(self) -> tuple[str, ...]:
        """The keys in the one order that does not depend on how the content came about."""
        if self._sorted_keys is None:
            self._sorted_keys = tuple(sorted(self.rows))
        return self._sorted_keys

    @property
    def content_name(self) -> str:
        """The content's name as it is written down."""
        return f"{self.content:x}"

    def content_after(self, delta: Delta) -> int:
        """What the content is called after a change; the work follows the change."""
        return (self.content + content_of(delta.after) - content_of(delta.before)) % _MODULUS

    def after(self, delta: Delta, version: str, content: int) -> "Table":
        """The table as a change leaves it, under its new version and with what its content is called then."""
        rows = self.rows.after(delta) if delta else self.rows
        return Table(self.name, rows, version, content=content, given_versions=self.given_versions)


def content_of(rows: Mapping[str, Row | None]) -> int:
    """Tells one content from another, whatever the order of its rows: the sum of a digest of each."""
    digests = (
        hashlib.blake2b(_encode_sorted((key, row)), digest_size=_DIGEST_SIZE).digest()
        for key, row in rows.items()
        if row is not None
    )
    return sum(int.from_bytes(digest, "big") for digest in digests) % _MODULUS


def minted_version(content: int) -> str:
    """The version of a content for which nobody has chosen one."""
    digest = hashlib.blake2b(content.to_bytes(_DIGEST_SIZE, "big"), digest_size=_DIGEST_SIZE).digest()
    return _MINT_MARK + base64.b32encode(digest).decode().lower()[:_MINTED_LENGTH]


def is_minted(version: str) -> bool:
    """Whether a version is one of those that are made from the content."""
    return MINTED_VERSION.match(version) is not None


def clean_rows(table: str, rows: Mapping[str, Any]) -> dict[str, Row]:
    """Rows from outside as a table may hold them: JSON throughout, ours alone; else `BadRow`."""
    if not isinstance(rows, Mapping):
        raise BadRow(f"the rows of table {table} are {shown(rows)}; give an object from key to row")
    return {check_key(key, table): _clean_row(table, key, row) for key, row in rows.items()}


def clean_delta(table: str, rows: RowMap, new_rows: Mapping[str, Any]) -> Delta:
    """What a whole new content from outside changes; only rows that differ are cleaned and kept."""
    if not isinstance(new_rows, Mapping):
        raise BadRow(f"the rows of table {table} are {shown(new_rows)}; give an object from key to row")
    try:
        keys: Iterable[str] = Delta.between(rows.plain(), new_rows).after
    except (TypeError, ValueError, RecursionError):  # not plain JSON; each row is looked at, if it can be
        keys = {**dict.fromkeys(rows), **dict.fromkeys(new_rows)}
    present = {key: new_rows[key] for key in keys if key in new_rows}
    return Delta.setting(rows, clean_rows(table, present), [key for key in keys if key not in new_rows])


def check_key(key: object, table: str) -> str:
    """The key, when a row may have it; else `BadRow`."""
    if not isinstance(key, str):
        raise BadRow(f"a key of table {table} is {shown(key)}; keys are strings")
    if not key:
        raise BadRow(f"a key of table {table} is empty")
    if not is_unicode(key):
        raise BadRow(f"the key {shown(key)} of table {table} is not valid Unicode")
    if len(key if key.isascii() else key.encode()) > _LONGEST_KEY:
        raise BadRow(f"a key of table {table} is longer than {_LONGEST_KEY} bytes")
    return key


def key_of(value: Any) -> str | None:
    """The row key that a value stands for: a string itself, an integer its digits, else none."""
    if isinstance(value, str):
        return str.__str__(value) or None  # a member of an enum of texts is spelled otherwise
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    return None


def _clean_row(table: str, key: str, row: Any) -> Row:
    if not isinstance(row, Mapping):
        raise BadRow(f"row {shown(key)} of table {table} is {shown(row)}; a row is an object")
    if type(row) is dict and _PLAIN.issuperset(map(type, row.values())) and {str}.issuperset(map(type, row)):
        with suppress(ValueError):  # why it cannot be written is found out below
            _encode_sorted(row)
            return {column: row[column] for column in sorted(row)}
    try:
        tree = msgspec.to_builtins(dict(row), str_keys=True)
        fault = fault_in(tree, _DEEPEST_ROW)
        if fault is None:
            cleaned: Row = _decode(_encode_sorted(tree))
            return cleaned
    except RecursionError:
        fault = fault_in(row, _DEEPEST_ROW)
    except (TypeError, ValueError):
        fault = None
    what = "cannot be written as JSON" if fault is None else fault.what
    raise BadRow(f"row {shown(key)} of table {table} {what}")
