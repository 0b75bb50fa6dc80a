"""Every message of the protocol, as frozen values that encode to the paper's JSON.

A member that a level does not send is UNSET and leaves no trace on the wire. Members that are not known
are ignored when a message is read, so that servers may add more.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from shelflife.contract.cells import Cells, cells_of_rows
from shelflife.contract.errors import BadMessage
from shelflife.contract.rules import Rule, SentRule

__all__ = [
    "AskFixes",
    "Changes",
    "ContractState",
    "Counts",
    "Edge",
    "ErrorMessage",
    "Graph",
    "Node",
    "PolicyResting",
    "Problem",
    "RecoveryFeedback",
    "RefreshTable",
    "Rejection",
    "ReloadReport",
    "ReloadRules",
    "ReloadTable",
    "Resting",
    "RulesChanges",
    "RulesReport",
    "Suggestion",
    "TableChanges",
    "TableVersion",
    "Workers",
]

_Rows = Annotated[
    dict[str, Any], msgspec.Meta(extra_json_schema={"additionalProperties": {"type": "object"}})
]
"""Rows by their keys. The table says what is wrong with one that is no row."""


class TableVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a dependency vector."""

    table: str
    version: str


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """The typed fix for one violated policy."""

    type: str
    """What kind of fix it is, e.g. `USE_REQUIRED_PROMO`."""

    parameters: dict[str, Any]
    """What to merge into the request (RFC 7396: a null takes the field away)."""

    cache_hint: Literal["cacheable", "recompute"]
    """`cacheable` when it rests on reference tables alone, `recompute` when it must not be kept."""

    table: str | UnsetType = UNSET
    """The table that the fix came from; only when cacheable."""

    tables: tuple[TableVersion, ...] | UnsetType = UNSET
    """Every table the fix depends on, at its version; takes precedence over `table`. From Level 4 on."""

    rows: tuple[str, ...] | UnsetType = UNSET
    """Every row the fix rests on, as `table:key`, including rows that were looked for and are not there. A
    bare table name stands for the whole table. Beyond the paper, from Level 4 on."""

    cells: Cells | UnsetType = UNSET
    """What was read of these rows, by table and key. Null stands for a whole table, and for a whole row. Else these columns of
    the row were read; with none at all only whether it is there. The key "" says that the set of keys was read. Beyond the
    paper, from Level 4 on."""

    rules: tuple[str, ...] | UnsetType = UNSET
    """Every rule that was followed or looked for, as `table:relation`. Beyond the paper, from Level 4 on."""

    by: str | UnsetType = UNSET
    """The policy that gave it, in short. Only to clients that name positions."""

    when: dict[str, Any] | UnsetType = UNSET
    """The request fields, with their values, under which the fix holds; null where the field is absent.
    A nested field is named by its JSON Pointer without the leading slash. Beyond the paper, from Level 4 on."""

    unless: dict[str, tuple[Any, ...]] | UnsetType = UNSET
    """Request fields with the values that they must not have for the fix to hold. Beyond the paper, from
    Level 4 on."""

    def __post_init__(self) -> None:
        if not self.type:
            raise BadMessage("a suggestion has an empty type")
        if self.cache_hint == "recompute" and (self.table or self.tables):
            raise BadMessage(f"the suggestion {self.type} says recompute and yet names a table")

    @property
    def grounds(self) -> tuple[tuple[str, ...], Cells]:
        """The tables that the fix depends on, and the cells: of rows without cells, all of them. Empty where neither is told."""
        return self.depends_on, cells_of_rows(self.rows or ()) if self.cells is UNSET else self.cells

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The names of the tables that the fix depends on; `tables` takes precedence over `table`."""
        if self.tables:
            return tuple(dependency.table for dependency in self.tables)
        if self.cells:
            return tuple(self.cells)
        return (self.table,) if self.table else ()


class RecoveryFeedback(msgspec.Struct, frozen=True, kw_only=True):
    """All the fixes for one rejected request."""

    suggestions: tuple[Suggestion, ...]


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request that a policy refused, from Level 1 on."""

    success: Literal[False]
    recovery_feedback: RecoveryFeedback
    table_versions: dict[str, str]
    """Every loaded table and its version."""

    rules_version: str | UnsetType = UNSET
    """The fingerprint of the rules. From Level 6 on."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same as `application/problem+json` (RFC 9457); the contract's members are its extensions."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | UnsetType = UNSET
    success: Literal[False] | UnsetType = UNSET
    recovery_feedback: RecoveryFeedback | UnsetType = UNSET
    table_versions: dict[str, str] | UnsetType = UNSET
    rules_version: str | UnsetType = UNSET


class ErrorMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An error of the contract's own endpoints."""

    success: Literal[False] = False
    error: str
    """One sentence that says what is wrong."""


_Name = Annotated[str, msgspec.Meta(max_length=100)]
_WaitS = Annotated[float, msgspec.Meta(ge=0, le=30)]
"""For how many seconds at most a reload is answered later, so that all workers have it."""


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """How far the worker processes have come that share the server's log."""

    live: int
    """How many there are. One that has not been heard of for some seconds, and tells nothing any more, does not count."""

    behind: int
    """How many of them do not have what was reloaded."""


class ReloadTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /admin/reload-table`: the whole table, or a change to it."""

    table: str
    rows: _Rows | UnsetType = UNSET
    """The whole new content."""

    set: _Rows | UnsetType = UNSET
    """Rows to add or replace, when only a change is sent."""

    remove: tuple[str, ...] | UnsetType = UNSET
    """Keys to take out, when only a change is sent."""

    version: str | None = None
    """The new version; without it one is minted when the content really changes."""

    replaces: str | None = None
    """The version that it is to take the place of. If the table is at another one, nothing is done."""

    wait_s: _WaitS | UnsetType = UNSET
    """Answer when all workers have it, or after so many seconds."""

    by: _Name = ""
    """Who reloads, for the log."""

    def __post_init__(self) -> None:
        if (self.rows is UNSET) == (self.set is UNSET is self.remove):
            raise BadMessage(
                "a reload carries either rows (the whole table) or set and remove (a change to it)"
            )


class RefreshTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /admin/refresh-table`: a table that is to be read again from where it lives."""

    table: str
    version: str | None = None
    """The new version; without it one is minted when the content really changes."""

    wait_s: _WaitS | UnsetType = UNSET
    """Answer when all workers have it, or after so many seconds."""

    by: _Name = ""
    """Who reloads, for the log."""


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload did."""

    table: str
    """The table that was reloaded."""

    old_version: str
    """Its version before."""

    new_version: str
    """Its version now; the same when nothing has changed."""

    added: tuple[str, ...]
    """The keys of rows that were not there before."""

    removed: tuple[str, ...]
    """The keys of rows that are no longer there."""

    changed: tuple[str, ...]
    """The keys of rows that are others now."""

    affected_downstream: tuple[str, ...] | UnsetType = UNSET
    """The nodes that lie downstream of the changed and removed rows in the graph as it was before.
    From Level 5 on."""

    workers: Workers | UnsetType = UNSET
    """Where `wait_s` was given: who has it. Absent too when that could not be found out."""


class ReloadRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /admin/reload-rules`: all the rules, or a change to them."""

    rules: tuple[SentRule, ...] | UnsetType = UNSET
    """All the rules that hold from now on."""

    add: tuple[SentRule, ...] | UnsetType = UNSET
    """Rules to declare, when only a change is sent."""

    remove: tuple[SentRule, ...] | UnsetType = UNSET
    """Rules to take back, when only a change is sent."""

    wait_s: _WaitS | UnsetType = UNSET
    """Answer when all workers have it, or after so many seconds."""

    by: _Name = ""
    """Who reloads, for the log."""

    def __post_init__(self) -> None:
        if (self.rules is UNSET) == (self.add is UNSET is self.remove):
            raise BadMessage(
                "a reload carries either rules (all of them) or add and remove (a change to them)"
            )


class RulesReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload of the rules did. A rule that was redeclared is in both lists."""

    old_version: str
    new_version: str
    added: tuple[Rule, ...]
    removed: tuple[Rule, ...]
    workers: Workers | UnsetType = UNSET
    """Where `wait_s` was given: who has it. Absent too when that could not be found out."""


class AskFixes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /contract/fixes`: what would the server suggest for this request?"""

    operation: str
    request: dict[str, Any]
    """The request, or as much of it as is known."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A row in the graph."""

    table: str
    key: str
    version: str


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A tie between two rows that a rule makes from a value."""

    from_node: str = field(name="from")
    to_node: str = field(name="to")
    relation: str


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /admin/graph`."""

    nodes: dict[str, Node]
    edges: tuple[Edge, ...]


class PolicyResting(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy has read of a row for its fixes."""

    fixes: int
    """How many of them still stand."""

    columns: tuple[str, ...] | None
    """The columns that it has read, with none at all whether the row is there; null for all of it."""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /admin/resting`: what a change of a row may make stale.

    It is known from the latest fixes that the process has given, and not from requests that were let through.
    """

    row: str
    """As `table:key`, or a table."""

    fixes: int
    policies: dict[str, PolicyResting]


class ContractState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /contract/state`."""

    table_versions: dict[str, str]
    """The version of every table."""

    rules_version: str | UnsetType = UNSET
    """The fingerprint of the rules. From Level 6 on."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows or rules changed, for a client that is not shown which."""

    added: int
    removed: int
    changed: int | UnsetType = UNSET
    """Only for rows. A rule that was redeclared is both added and removed."""


class TableChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a table since a version, if that is known."""

    since: str
    """The version that was asked about."""

    version: str | None
    """The version now; null when the table is not loaded."""

    known: bool
    """False when the version is too old, or was never there: the lists are then absent, and a client
    treats every row of the table as changed."""

    added: tuple[str, ...] | UnsetType = UNSET
    removed: tuple[str, ...] | UnsetType = UNSET
    changed: tuple[str, ...] | UnsetType = UNSET
    columns: dict[str, tuple[str, ...]] | UnsetType = UNSET
    """Of a changed row the columns that differ; of one that is not in here, any may. From Level 4 on."""

    affected_downstream: tuple[str, ...] | UnsetType = UNSET
    """From Level 5 on."""

    counts: Counts | UnsetType = UNSET
    """In place of the lists, for a client that is not shown keys; `known` is then false."""


class RulesChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the rules since a fingerprint, if that is known."""

    since: str
    """The fingerprint that was asked about."""

    version: str
    """The fingerprint now."""

    known: bool
    """Whether it is known what has changed since; if not, a client takes every rule for changed."""

    added: tuple[Rule, ...] | UnsetType = UNSET
    removed: tuple[Rule, ...] | UnsetType = UNSET
    counts: Counts | UnsetType = UNSET
    """In place of the lists, for a client that is not shown them; `known` is then false."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /contract/changes`."""

    tables: dict[str, TableChanges]
    """One member for each table that was asked about."""

    rules: RulesChanges | UnsetType = UNSET
    """When it was asked about. From Level 6 on."""

    table_versions: dict[str, str]
    rules_version: str | UnsetType = UNSET
