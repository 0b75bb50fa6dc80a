"""How things are called on the wire: tables, relations, versions and `table:key`."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeGuard

from shelflife.contract.errors import BadName

__all__ = [
    "check_name",
    "check_suggestion_names",
    "check_version",
    "check_versions",
    "is_unicode",
    "is_version",
    "node_id",
    "shown",
    "split_node_id",
]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_VERSION = re.compile(r"[\x20-\x7e]{1,128}\Z")
_NAMES = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]{0,127}(?:\n|\Z))*+\Z")
_VERSIONS = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?(?:\n|\Z))*+\Z")
_LONGEST_SHOWN = 60


def shown(value: object) -> str:
    """A value from outside, quoted and cut to a length that fits in an error message."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # a whole number of too many digits, lists without end
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def check_name(name: object, what: str = "table") -> str:
    """The name, when a table or relation may be called that; else `BadName`."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise BadName(
            f"{shown(name)} cannot name a {what}: use a letter or underscore, then letters, digits,"
            " underscores, dots or dashes, at most 128 in all"
        )
    return name


def is_version(version: object) -> TypeGuard[str]:
    """Whether it is 1 to 128 printable ASCII characters, with no space at either end."""
    return isinstance(version, str) and bool(_VERSION.match(version)) and version == version.strip()


def check_version(version: object) -> str:
    """The version, when it can be one; else `BadName`."""
    if not is_version(version):
        raise BadName(
            f"{shown(version)} cannot be a version: use 1 to 128 printable ASCII characters,"
            " with no space at either end"
        )
    return version


def check_versions(tables: Mapping[str, str], rules: str | None) -> None:
    """Raise `BadName` unless all of these can be tables with versions, and a version of rules."""
    if not (_are_all(_NAMES, tables) and _are_all(_VERSIONS, tables.values())):
        for table, version in tables.items():
            check_name(table)
            check_version(version)
    if rules is not None:
        check_version(rules)


def _are_all(kind: re.Pattern[str], texts: Collection[str]) -> bool:
    """Whether all texts are of a kind that has no line ends in it, at a glance: there may be hundreds with each response."""
    lines = "\n".join(texts)
    return kind.match(lines) is not None and lines.count("\n") == max(len(texts) - 1, 0)


def check_suggestion_names(type: str, nodes: Iterable[str]) -> None:
    """Raise `BadName` unless a suggestion can be of this type, and the tables of all these nodes can be called that."""
    check_name(type, "suggestion")
    for node in nodes:
        check_name(split_node_id(node)[0])


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def node_id(table: str, key: str) -> str:
    """`table:key`, the identity of a row on the wire and in the graph."""
    return f"{table}:{key}"


def split_node_id(node: str) -> tuple[str, str | None]:
    """Table and key of `table:key`; the key is None for a bare table name (the whole table).

    Table names hold no colon, so the first one divides; a key may contain more.
    """
    table, colon, key = node.partition(":")
    return table, key if colon else None
