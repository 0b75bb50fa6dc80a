"""What a policy sees, and the record of what it looked at.

A policy is a pure function of the values that these views hand out, so the record is complete: when nothing in it
has changed, the policy would say the same again. Views hand out copies of lists and objects, with everything in sorted order,
so that neither a policy's mistake nor the way a value came about can leak into a result.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from shelflife.contract import Row, Rule, node_id, same_json
from shelflife.contract.names import key_of
from shelflife.contract.when import WHOLE_REQUEST, as_read, field_path
from shelflife.server.graph import target_keys
from shelflife.server.state import State

__all__ = ["Reads", "Request", "RowView", "TableView", "Tables"]


class Reads:
    """The record of one policy's reads."""

    __slots__ = ("_different", "_entered", "_fields", "rows", "rules", "tables", "untracked")

    def __init__(self) -> None:
        self.rows: dict[str, None] = {}
        """Rows as `table:key`, whole tables as their bare name, in the order of the first read."""
        self.tables: dict[str, None] = {}
        """Table names, in the order of the last read."""
        self.rules: dict[str, None] = {}
        """Rules as `table:relation`, in the order of the first read."""
        self.untracked: str | None = None
        """What was read that no version vouches for."""
        self._fields: dict[str, Any] = {}
        self._entered: dict[str, Any] = {}
        self._different: dict[str, list[Any]] = {}

    def field(self, path: str, value: Any) -> None:
        self._fields[path] = value

    def different(self, path: str, value: Any) -> None:
        """A field was found to have another value than this, which is all that was read of it."""
        values = self._different.setdefault(path, [])
        if not any(same_json(value, known) for known in values):
            values.append(value)

    def entered(self, path: str, value: Mapping[str, Any]) -> None:
        """An object was handed out; what counts is what is read of it later."""
        self._entered[path] = value

    @property
    def unless(self) -> dict[str, tuple[Any, ...]]:
        """The values that fields were found not to have, where their value is not on record anyway."""
        when = self.when
        if WHOLE_REQUEST in when:
            return {}
        return {path: tuple(values) for path, values in self._different.items() if path not in when}

    def row(self, table: str, key: str) -> None:
        self.rows[node_id(table, key)] = None
        self.table(table)

    def whole_table(self, table: str) -> None:
        self.rows[table] = None
        self.table(table)

    def table(self, table: str) -> None:
        self.tables.pop(table, None)
        self.tables[table] = None

    def rule(self, table: str, relation: str) -> None:
        self.rules[f"{table}:{relation}"] = None

    @property
    def when(self) -> dict[str, Any]:
        """The fields that were read, with their values; None where there was none.

        That an object is there at all is a reading too. A value found inside it says so; where none was, the object
        is recorded whole.
        """
        when = dict(self._fields)
        for path, value in self._entered.items():
            if not any(
                found is not None and (read == path or read.startswith(path + "/"))
                for read, found in when.items()
            ):
                when[path] = as_read(value)
        if WHOLE_REQUEST in when:
            return {WHOLE_REQUEST: when[WHOLE_REQUEST]}
        return when


class Request(Mapping[str, Any]):
    """The fields of a request, or of an object inside it. A null is an absent field."""

    __slots__ = ("_fields", "_path", "_reads")

    def __init__(self, fields: Mapping[str, Any], reads: Reads, path: str = WHOLE_REQUEST) -> None:
        self._fields = fields
        self._reads = reads
        self._path = path

    def __getitem__(self, name: str) -> Any:
        value = self._read(name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        value = self._read(name)
        return default if value is None else value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._read(name) is not None

    def equals(self, name: str, value: Any) -> bool:
        """Whether the field has this value (None: is absent).

        When it has not, that is all that counts as read, so the fix holds for every other value too. Prefer it to
        `request.get(name) == value` where the two would do the same.
        """
        path = field_path(self._path, name)
        expected = as_read(value)
        if path == WHOLE_REQUEST or same_json(as_read(self._fields.get(name)), expected):
            return same_json(self._read_plainly(name), expected)
        self._reads.different(path, expected)
        return False

    def __iter__(self) -> Iterator[str]:
        self._read_whole()
        return iter(sorted(name for name, value in self._fields.items() if value is not None))

    def __len__(self) -> int:
        self._read_whole()
        return sum(value is not None for value in self._fields.values())

    def __repr__(self) -> str:
        self._read_whole()
        return f"Request({dict(self._fields)!r})"

    def _read(self, name: str) -> Any:
        value = self._fields.get(name)
        path = field_path(self._path, name)
        if isinstance(value, Mapping) and path != WHOLE_REQUEST:
            self._reads.entered(path, value)
            return Request(value, self._reads, path)
        return self._read_plainly(name)

    def _read_plainly(self, name: str) -> Any:
        value = as_read(self._fields.get(name))
        path = field_path(self._path, name)
        if path == WHOLE_REQUEST:  # a field without a name has no pointer of its own
            self._read_whole()
        else:
            self._reads.field(path, value)
        return value

    def _read_whole(self) -> None:
        self._reads.field(self._path, as_read(self._fields))


class RowView(Mapping[str, Any]):
    """One row, as a policy sees it."""

    __slots__ = ("_reads", "_row", "_state", "_table", "key")

    def __init__(self, state: State, reads: Reads, table: str, key: str, row: Row) -> None:
        self._state = state
        self._reads = reads
        self._table = table
        self._row = row
        self.key = key

    def __getitem__(self, column: str) -> Any:
        self._reads.table(self._table)
        value = self._row[column]
        return deepcopy(value) if isinstance(value, list | dict) else value

    def __iter__(self) -> Iterator[str]:
        self._reads.table(self._table)
        return iter(sorted(self._row))

    def __len__(self) -> int:
        return len(self._row)

    def __repr__(self) -> str:
        return f"<row {node_id(self._table, self.key)} {self._row!r}>"

    def follow(self, relation: str) -> "RowView | None":
        """The row that this one leads to by the relation: None when no such rule is declared, or no row is there."""
        return next(self._followed(relation), None)

    def follow_all(self, relation: str) -> "list[RowView]":
        """All the rows that this one leads to by the relation."""
        return list(self._followed(relation))

    def _followed(self, relation: str) -> "Iterator[RowView]":
        self._reads.rule(self._table, relation)
        rule: Rule | None = self._state.rules.find(self._table, relation)
        if rule is None:
            return
        self._reads.table(self._table)
        target = TableView(self._state, self._reads, rule.to_table)
        for key in target_keys(rule, self._row):
            row = target.get(key)
            if row is not None:
                yield row


class TableView(Mapping[str, RowView]):
    """One table, as a policy sees it. A look-up reads one row; a walk reads them all."""

    __slots__ = ("_name", "_reads", "_state", "_table")

    def __init__(self, state: State, reads: Reads, name: str) -> None:
        self._state = state
        self._reads = reads
        self._name = name
        self._table = state.tables[name]

    def __getitem__(self, key: str) -> RowView:
        row: RowView | None = self.get(key)
        if row is None:
            raise KeyError(key)
        return row

    def get(self, key: Any, default: Any = None) -> Any:
        """The row under the key. A value that can be no key (a null, a list) is in no table."""
        row_key = key_of(key)
        if row_key is None:
            return default
        self._reads.row(self._name, row_key)
        row = self._table.rows.get(row_key)
        if row is None:
            return default
        return RowView(self._state, self._reads, self._name, row_key, row)

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        self._reads.whole_table(self._name)
        return iter(self._table.sorted_keys)

    def __len__(self) -> int:
        self._reads.whole_table(self._name)
        return len(self._table.rows)

    def __repr__(self) -> str:
        return f"<table {self._name}>"


class Tables:
    """The tables and rules, as a policy sees them: `tables.plans["basic"]` or `tables["plans"]["basic"]`."""

    __slots__ = ("_reads", "_state")

    def __init__(self, state: State, reads: Reads) -> None:
        self._state = state
        self._reads = reads

    def __getattr__(self, name: str) -> TableView:
        if name not in self._state.tables:
            raise AttributeError(f"there is no table called {name}")
        return TableView(self._state, self._reads, name)

    def __getitem__(self, name: str) -> TableView:
        return TableView(self._state, self._reads, name)

    def has_rule(self, from_table: str, relation: str) -> bool:
        """Whether a rule called `relation` leaves `from_table`."""
        self._reads.rule(from_table, relation)
        return self._state.rules.find(from_table, relation) is not None

    def report_untracked(self, what: str) -> None:
        """Say that the policy has read something that no table version vouches for: its fix is never kept."""
        self._reads.untracked = what
