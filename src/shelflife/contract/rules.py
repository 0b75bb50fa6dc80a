"""Rules: what ties a value in one table to a key in another."""

import msgspec

from shelflife.contract.errors import BadName
from shelflife.contract.names import check_name, is_unicode, shown

__all__ = ["Rule", "SentRule"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=False):
    """A declaration that ties a value in one table to a key in another."""

    from_table: str = msgspec.field(name="from")
    """The table whose rows hold the value."""

    to_table: str = msgspec.field(name="to")
    """The table in which the value is a key."""

    relation: str
    """What the tie is called; from one table a relation leads to one other table."""

    via: str | None = None
    """The column that holds the value (or a list of values); by default, any column may."""

    def __post_init__(self) -> None:
        check_name(self.from_table)
        check_name(self.to_table)
        check_name(self.relation, "relation")
        via: object = self.via
        if via is not None and not (isinstance(via, str) and is_unicode(via)):
            raise BadName(f"{shown(via)} cannot be a column: use a string that is valid Unicode")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    @property
    def id(self) -> str:
        """`table:relation`, by which a policy's reading of the rule goes on the wire."""
        return f"{self.from_table}:{self.relation}"

    @property
    def canonical(self) -> tuple[str, ...]:
        """The triple that is fingerprinted, with the column as a fourth member where one is named."""
        triple = (self.from_table, self.to_table, self.relation)
        return triple if self.via is None else (*triple, self.via)


class SentRule(Rule, frozen=True, kw_only=True, omit_defaults=True, eq=False, forbid_unknown_fields=True):
    """The same rule in an operator's message, where an unknown member is a mistake."""
