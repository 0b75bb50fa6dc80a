"""What a memory keeps and what it drops: the seams at which strategies differ, and the one that users have."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from shelflife.client.entries import Entry
from shelflife.client.events import Reason
from shelflife.client.stores import Filed
from shelflife.contract.cells import ALL_KEYS, Columns
from shelflife.contract.positions import MovedRules, MovedTable

__all__ = ["EXACT", "POLICIES", "RULES", "Change", "Exact", "Forgetting", "Revision", "Strategy"]

RULES = ":rules"
"""Stands for the rules among the parts of a state; no table is called that."""

POLICIES = ":policies"
"""Stands for the policies among them."""

Change = MovedTable | MovedRules | tuple[str, ...]
"""What has moved: a table, the rules, or these policies."""

STANDING = "all"
"""The tag of every entry of a root that is not suspect."""

SUSPECT = "suspect"
"""The tag of every entry that is, and its only one: what else moves does not concern it until it was revalidated."""

EVERYTHING = (STANDING, SUSPECT)
"""Every entry of a root bears one of these."""

ANY_RULE = "rule"
"""The tag of an entry that may rest on any rule."""

ANY_POLICY = "policy"
"""The tag of an entry that may be of any policy."""


def table_tag(table: str) -> str:
    """The tag of what depends on a table."""
    return f"table {table}"


def any_row_tag(table: str) -> str:
    """The tag of what read a table whole, or may have."""
    return f"rows {table}"


def keys_tag(table: str) -> str:
    """The tag of what read which rows a table has."""
    return f"keys {table}"


def presence_tag(table: str, key: str) -> str:
    """The tag of what read whether a row is there, and nothing else of it."""
    return f"there {table}:{key}"


def row_tag(table: str, key: str) -> str:
    """The tag of what read any column of a row."""
    return f"row {table}:{key}"


def whole_row_tag(table: str, key: str) -> str:
    """The tag of what read all of a row."""
    return f"whole {table}:{key}"


def cell_tag(table: str, key: str, column: str) -> str:
    """The tag of what read a column of a row. Keys and columns may be any text, so a length tells where one ends."""
    return f"cell {table}:{len(key)}:{key}:{column}"


def rule_tag(rule: str) -> str:
    """The tag of what rests on a rule."""
    return f"rule {rule}"


def policy_tag(policy: str) -> str:
    """The tag of what a policy gave."""
    return f"policy {policy}"


_CELL = re.compile(r"cell ([^:]*):(\d+):(.*)", re.DOTALL)


def broader(tag: str) -> str | None:
    """The next tag that is borne by all that bear this one; None where there is none.

    A store may leave out what follows from another tag: a cell is one of its row, a row of its table, and whatever a table, a rule or
    a policy may make stale is not suspect.
    """
    kind, _, rest = tag.partition(" ")
    if kind == "cell" and (cell := _CELL.fullmatch(tag)) is not None:
        table, length, key = cell.groups()
        return row_tag(table, key[: int(length)])
    if kind == "whole":
        return f"row {rest}"
    if kind in ("row", "there", "rows", "keys"):
        return table_tag(rest.partition(":")[0])
    return STANDING if kind in ("table", "rule", "policy") else None


class Forgetting(msgspec.Struct, frozen=True):
    """What follows from the movement of a table, or of the rules."""

    tags: Mapping[str, Reason] = {}
    """What bears one of these goes."""

    kept: tuple[str, ...] = ()
    """Tables that have moved, and of which something is still good."""

    alert: Literal["stamp", "vector"] | None = None
    """How a change of the rules was noticed."""

    suspect: tuple[str, ...] = ()
    """What bears one of these may still be right, and is revalidated before it is used."""


class Revision(msgspec.Struct, frozen=True):
    """What new fixes show about those that are remembered."""

    dropped: Mapping[str, Reason] = {}
    """By id."""

    put: Sequence[Entry] = ()
    """Entries to take the place of what they were."""

    kept: tuple[str, ...] = ()
    """A table for each of these that has come to depend on it."""

    alert: Literal["stamp", "vector"] | None = None


class Strategy(Protocol):
    """Where one way of keeping a memory differs from another. All of it is pure."""

    @property
    def name(self) -> str:
        """Goes on record with what is kept under it."""

    def asks(self, part: str, *, is_held: bool) -> bool:
        """Whether the server is asked what has changed in a table, or in the `RULES`, when that has moved.

        `is_held` tells whether anything hangs on it: entries that depend on it, or suggestions of the response that named its version.
        """

    def forgets(self, part: str, change: Change | None) -> Forgetting:
        """What goes when a table, or the `RULES`, has moved; None when nobody can say what has changed."""

    def files(self, entry: Entry) -> Filed:
        """How an entry is filed, so that what `forgets` names finds it, and what leaves for it."""

    def revises(self, lessons: Sequence[Entry], tagged: Callable[[str], Sequence[Entry]]) -> Revision:
        """What the fixes of a response show about others; `tagged` gives the entries that bear a tag."""


class Exact:
    """By cells and by rules: an entry goes exactly when a cell that it rests on has changed.

    A rule or a policy often changes without changing the fix, so what rests on one is kept, and revalidated before it is used.
    """

    name = "exact"

    def asks(self, part: str, *, is_held: bool) -> bool:
        return is_held

    def forgets(self, part: str, change: Change | None) -> Forgetting:
        if isinstance(change, tuple):
            return Forgetting(suspect=(ANY_POLICY, *map(policy_tag, change)))
        if change is None or not change.known:
            if part == RULES:
                return Forgetting({STANDING: Reason.RULES_MOVED}, alert="stamp")
            return Forgetting({table_tag(part): Reason.TABLE_MOVED})
        if isinstance(change, MovedRules):
            rules = [rule_tag(rule.id) for rule in (*change.added, *change.removed)]
            return Forgetting(suspect=(ANY_RULE, *rules), alert="stamp") if rules else Forgetting()
        return Forgetting(dict.fromkeys(_tags_of(part, change), Reason.ROW_CHANGED), kept=(part,))

    def files(self, entry: Entry) -> Filed:
        grounds = entry.grounds
        tags = [table_tag(table) for table in grounds.tables]
        if grounds.cells is None:
            tags += map(any_row_tag, grounds.tables)
        for table, rows in (grounds.cells or {}).items():
            tags += [any_row_tag(table)] if rows is None else _row_tags(table, rows)
        tags += [ANY_RULE] if grounds.rules is None else map(rule_tag, grounds.rules)
        tags.append(ANY_POLICY if grounds.policy is None else policy_tag(grounds.policy))
        return Filed(entry, entry.slot, tuple(dict.fromkeys(tags)))

    def revises(self, lessons: Sequence[Entry], tagged: Callable[[str], Sequence[Entry]]) -> Revision:
        return Revision()


def _tags_of(table: str, moved: MovedTable) -> list[str]:
    """The tags of what rests on something of a table that has changed."""
    come_or_gone = (*moved.added, *moved.removed)
    tags = [keys_tag(table)] if come_or_gone else []
    for key in come_or_gone:
        tags += (presence_tag(table, key), row_tag(table, key))
    for key in moved.changed:
        columns = moved.columns.get(key)
        if columns is None:
            tags.append(row_tag(table, key))
            continue
        tags.append(whole_row_tag(table, key))  # what read all of the row, or one of these columns
        for column in columns:
            tags.append(cell_tag(table, key, column))
    if tags:
        tags.append(any_row_tag(table))
    return tags


def _row_tags(table: str, rows: Mapping[str, Columns]) -> Iterator[str]:
    """The tags of what read these columns."""
    for key, columns in rows.items():
        if key == ALL_KEYS:
            yield keys_tag(table)
        elif columns is None:
            yield from (row_tag(table, key), whole_row_tag(table, key))
        else:
            yield row_tag(table, key) if columns else presence_tag(table, key)
            yield from (cell_tag(table, key, column) for column in columns)


EXACT = Exact()
"""The strategy that users have."""
