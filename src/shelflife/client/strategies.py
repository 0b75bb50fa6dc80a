"""What a memory keeps and what it drops: the seams at which strategies differ, and the one that users have."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from shelflife.client.entries import Entry
from shelflife.client.events import Reason
from shelflife.client.stores import Filed
from shelflife.contract import RulesChanges, TableChanges
from shelflife.contract.names import node_id

__all__ = ["EXACT", "RULES", "Change", "Exact", "Forgetting", "Revision", "Strategy"]

RULES = ":rules"
"""Stands for the rules among the parts of a state; no table is called that."""

Change = TableChanges | RulesChanges

STANDING = "all"
"""The tag of every entry of a root that is not suspect."""

SUSPECT = "suspect"
"""The tag of every entry that is, and its only one: what else moves does not concern it until it was revalidated."""

EVERYTHING = (STANDING, SUSPECT)
"""Every entry of a root bears one of these."""

ANY_RULE = "rule"
"""The tag of an entry that may rest on any rule."""


def table_tag(table: str) -> str:
    """The tag of what depends on a table."""
    return f"table {table}"


def any_row_tag(table: str) -> str:
    """The tag of what read a table whole, or may have."""
    return f"rows {table}"


def row_tag(node: str) -> str:
    """The tag of what rests on a row."""
    return f"row {node}"


def rule_tag(rule: str) -> str:
    """The tag of what rests on a rule."""
    return f"rule {rule}"


class Forgetting(NamedTuple):
    """What follows from the movement of a table, or of the rules."""

    tags: Mapping[str, Reason] = {}
    """What bears one of these goes."""

    kept: tuple[str, ...] = ()
    """Tables that have moved, and of which something is still good."""

    alert: Literal["stamp", "vector"] | None = None
    """How a change of the rules was noticed."""


class Revision(NamedTuple):
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

    def asks(self, part: str) -> bool:
        """Whether the server is asked what has changed in a table, or in the `RULES`, when that has moved."""

    def forgets(self, part: str, change: Change | None) -> Forgetting:
        """What goes when a table, or the `RULES`, has moved; None when nobody can say what has changed."""

    def files(self, entry: Entry) -> Filed:
        """How an entry is filed, so that what `forgets` names finds it, and what leaves for it."""

    def revises(self, lessons: Sequence[Entry], tagged: Callable[[str], Sequence[Entry]]) -> Revision:
        """What the fixes of a response show about others; `tagged` gives the entries that bear a tag."""


class Exact:
    """By rows and by rules: an entry goes exactly when something that it rests on has changed."""

    name = "exact"

    def asks(self, part: str) -> bool:
        return True

    def forgets(self, part: str, change: Change | None) -> Forgetting:
        if change is None or not change.known:
            if part == RULES:
                return Forgetting({STANDING: Reason.RULES_MOVED}, alert="stamp")
            return Forgetting({table_tag(part): Reason.TABLE_MOVED})
        if isinstance(change, RulesChanges):
            rules = [rule_tag(rule.id) for rule in (*(change.added or ()), *(change.removed or ()))]
            tags = dict.fromkeys((ANY_RULE, *rules), Reason.RULE_CHANGED)
            return Forgetting(tags, alert="stamp") if rules else Forgetting()
        keys = (*(change.added or ()), *(change.removed or ()), *(change.changed or ()))
        rows = [row_tag(node_id(part, key)) for key in keys]
        tags = dict.fromkeys((any_row_tag(part), *rows), Reason.ROW_CHANGED) if rows else {}
        return Forgetting(tags, kept=(part,))

    def files(self, entry: Entry) -> Filed:
        grounds = entry.grounds
        rows = grounds.tables if grounds.rows is None else grounds.rows
        tags = [table_tag(table) for table in grounds.tables]
        tags += (row_tag(node) if ":" in node else any_row_tag(node) for node in rows)
        tags += [ANY_RULE] if grounds.rules is None else map(rule_tag, grounds.rules)
        return Filed(entry, entry.slot, tuple(dict.fromkeys(tags)))

    def revises(self, lessons: Sequence[Entry], tagged: Callable[[str], Sequence[Entry]]) -> Revision:
        return Revision()


EXACT = Exact()
"""The strategy that users have."""
