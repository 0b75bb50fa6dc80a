"""What a policy sees, and the record of what it looked at.

Of a policy that is a function of the values that these views hand out, and of nothing else, the record is complete:
when nothing in it has changed, the policy would say the same again. The first look at a request is through the same views without a
record, because most requests are good. Only a policy that has found something runs again under a record. Views hand
out copies of lists and objects, in sorted order. So neither a policy's mistake nor the way a value came about can leak
into a result.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NoReturn
from weakref import ref

from shelflife.contract import Rule, same_json
from shelflife.contract.cells import ALL_KEYS, Cells, Columns, size_of
from shelflife.contract.names import node_id
from shelflife.contract.when import WHOLE_REQUEST, as_read, field_path, read_at
from shelflife.server.delta import Row
from shelflife.server.graph import target_keys
from shelflife.server.state import State
from shelflife.server.tables import Table, key_of

__all__ = ["Reads", "Request", "RowView", "TableView", "Tables", "with_objects"]

_log = logging.getLogger("shelflife")

_SCALARS = frozenset({str, int, float, bool, type(None)})
_NOTHING: Row = {}
_MOST_KEPT_VIEWS = 4096
_MOST_RELATIONS = 64
"""Of so many it is kept where a row leads by them. A policy may follow what a client has named."""

_MOST_ROWS = 64
"""Whoever has read more rows of a table has read it whole."""
_MOST_CELLS = 512
"""Whoever has read more cells has read their rows whole. No client takes a suggestion that names many more."""


class _Sentence(str):
    """What is wrong, as a KeyError shows it: without the quotes of a key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Reads:
    """The record of one policy's reads."""

    __slots__ = ("_cells", "_different", "_entered", "_fields", "rules", "tables", "untracked")

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, set[str] | None] | None] = {}
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

    def row(self, table: str, key: str, columns: Columns = ()) -> None:
        """These columns of a row were read; with none at all whether it is there, with None all of it.

        Whoever has read the set of keys (`ALL_KEYS`) knows which rows are there.
        """
        self.tables.pop(table, None)
        self.tables[table] = None
        rows = self._cells.setdefault(table, {})
        if rows is None or (columns == () and ALL_KEYS in rows):
            return
        read = rows.setdefault(key, set())
        if columns is None:
            rows[key] = None
        elif read is not None:
            read.update(columns)
        if len(rows) > _MOST_ROWS + (ALL_KEYS in rows):
            self._cells[table] = None

    @property
    def cells(self) -> Cells:
        """What was read of the tables, in the order of the first read."""
        are_many = size_of(self._cells) > _MOST_CELLS

        def told(columns: set[str] | None) -> Columns:
            return None if columns is None or (columns and are_many) else tuple(sorted(columns))

        return {
            table: None if rows is None else {key: told(columns) for key, columns in rows.items()}
            for table, rows in self._cells.items()
        }

    def rule(self, table: str, relation: str) -> None:
        self.rules[f"{table}:{relation}"] = None

    @property
    def when(self) -> dict[str, Any]:
        """The fields that were read, with their values; None where there was none."""
        if WHOLE_REQUEST in self._fields:
            return {WHOLE_REQUEST: self._fields[WHOLE_REQUEST]}
        return dict(self._fields)

    @property
    def objects(self) -> list[str]:
        """The objects that were looked into, where nothing found inside says that they are there: that is a reading too."""
        if WHOLE_REQUEST in self._fields:
            return []
        found = [path for path, value in self._fields.items() if value is not None]
        inside = (*found, *(path for path, values in self._different.items() if None in values))
        return [
            path
            for path in self._entered
            if path not in found and not any(read.startswith(path + "/") for read in inside)
        ]

    def conditions(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
        """`when` and `unless` for a request that is read as it is sent."""
        return with_objects(self.when, self.unless, self.objects, request)


def with_objects(
    when: dict[str, Any],
    unless: dict[str, tuple[Any, ...]],
    objects: Iterable[str],
    request: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """Conditions which also say that objects of a request are there: something in each of them is, or it is empty.

    Best of all is what was compared. What is found in place of a text has no fields.
    """
    said, never = dict(when), dict(unless)
    for path in objects:
        inside = {field_path(path, name): value for name, value in (read_at(request, path) or {}).items()}
        there = next((at for at in (*(at for at in unless if at in inside), *inside)), None)
        if there is None:
            said[path] = {}
        else:
            never[there] = (*never.get(there, ()), None)
    return said, {at: values for at, values in never.items() if at not in said}


def _name(name: object) -> str | None:
    """What something is looked up by, which is also what goes on record: a member of an enum of texts is its text.

    What is no text is the name of nothing.
    """
    return str.__str__(name) if isinstance(name, str) else None


class _View:
    """What a policy sees. It cannot be copied whole, past the record."""

    __slots__ = ()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} can be neither copied nor pickled: take what you need out of it"
        )

    def __dir__(self) -> list[str]:
        return dir(type(self))


class Request(_View, Mapping[str, Any]):
    """The fields of a request, or of an object inside it. A null is an absent field."""

    __slots__ = ("_fields", "_path", "_reads")

    def __init__(
        self, fields: Mapping[str, Any], reads: Reads | None = None, path: str = WHOLE_REQUEST
    ) -> None:
        self._fields = fields
        self._reads = reads
        self._path = path

    def __getitem__(self, name: str) -> Any:
        if self._reads is None and type(name) is str:  # most requests are good, and pay for no call
            value = self._fields.get(name)
            if type(value) is str or (value is not None and type(value) in _SCALARS):
                return value
        value = self._read(name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, or of an object the same view of it; the default when the field is absent or null."""
        if self._reads is None and type(name) is str:
            value = self._fields.get(name)
            if type(value) is str or (value is not None and type(value) in _SCALARS):
                return value
        value = self._read(name)
        return default if value is None else value

    def __contains__(self, name: object) -> bool:
        return not self.equals(name, None)

    def equals(self, name: object, value: Any) -> bool:
        """Whether the field has this value (None: is absent).

        When it has not, that is all that counts as read, so the fix holds for every other value too. Prefer it to
        `request.get(name) == value` where the two would do the same.
        """
        field = _name(name)
        if field is None:
            return value is None
        actual = self._fields.get(field)
        if value is None or (type(actual) is str and type(value) is str):
            is_equal = actual == value
        else:
            is_equal = same_json(as_read(actual), as_read(value))
        if self._reads is not None:
            path = field_path(self._path, field)
            if is_equal or path == WHOLE_REQUEST:
                self._record(path, actual)
            else:
                self._reads.different(path, as_read(value))
        return is_equal

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
        field = name if type(name) is str else _name(name)
        value = None if field is None else self._fields.get(field)
        if field is None or (self._reads is None and type(value) in _SCALARS):
            return value
        path = field_path(self._path, field)
        if isinstance(value, Mapping) and path != WHOLE_REQUEST:
            if self._reads is not None:
                self._reads.entered(path, value)
            return Request(value, self._reads, path)
        self._record(path, value)
        return as_read(value)

    def _record(self, path: str, value: Any) -> None:
        if path == WHOLE_REQUEST:  # a field without a name has no pointer of its own
            self._read_whole()
        elif self._reads is not None:
            self._reads.field(path, as_read(value))

    def _read_whole(self) -> None:
        if self._reads is not None:
            self._reads.field(self._path, as_read(self._fields))


class RowView(_View, Mapping[str, Any]):
    """One row, as a policy sees it."""

    __slots__ = ("_at_hand", "_key", "_leads_to", "_reads", "_row", "_table", "_tables")

    def __init__(self, tables: "ref[Tables]", reads: Reads | None, table: str, key: str, row: Row) -> None:
        self._at_hand = _NOTHING if reads is not None else _plain_part(row)
        """What is handed out at once: most requests are good, and pay for no more than a look. Under a record nothing is."""
        self._leads_to: dict[str, RowView | None] = {}
        """The same for rows."""
        self._tables = tables
        self._reads = reads
        self._row = row
        self._table = table
        self._key = key

    @property
    def table(self) -> str:
        """The name of its table."""
        return self._table

    @property
    def key(self) -> str:
        """Its key. It is no reading: whoever has the row knows it."""
        return self._key

    def __getitem__(self, column: str) -> Any:
        try:
            if type(column) is str:
                return self._at_hand[column]
        except KeyError:
            pass
        name = self._read(column)
        try:
            return deepcopy(self._row[name])
        except KeyError:
            raise KeyError(_Sentence(f"row {self._key} of {self._table} has no column {name}")) from None

    def __contains__(self, column: object) -> bool:
        return self._read(column) in self._row

    __bool__ = True.__bool__  # it is there, and to have got it was to read that

    def __iter__(self) -> Iterator[str]:
        self._read_whole()
        return iter(sorted(self._row))

    def __len__(self) -> int:
        self._read_whole()
        return len(self._row)

    def __repr__(self) -> str:
        self._read_whole()
        return f"<row {node_id(self._table, self._key)} {self._row!r}>"

    def _read(self, column: object) -> Any:
        """A column is read. What it is looked up by is given back."""
        name = _name(column)
        if self._reads is not None:
            self._reads.row(self._table, self._key, () if name is None else (name,))
        return name

    def _read_whole(self) -> None:
        if self._reads is not None:
            self._reads.row(self._table, self._key, None)

    def follow(self, relation: str) -> "RowView | None":
        """The row that this one leads to by the relation: None when no such rule is declared, or no row is
        there."""
        try:
            return self._leads_to[relation]
        except KeyError:
            pass
        row = next(self._followed(relation), None)
        if self._reads is None and len(self._leads_to) < _MOST_RELATIONS:
            self._leads_to[relation] = row
        return row

    def follow_all(self, relation: str) -> "list[RowView]":
        """All the rows that this one leads to by the relation."""
        return list(self._followed(relation))

    def _followed(self, relation: str) -> "Iterator[RowView]":
        tables = self._tables()
        if tables is None:
            raise ReferenceError("a row can be followed only while the tables it came from are in use")
        rule = tables._rule(self._table, relation)
        if rule is None:
            tables._tell_of_no_rule(self._table, relation)
            return
        if rule.via is None:
            self._read_whole()
        else:
            self._read(rule.via)
        target = tables[rule.to_table]
        for key in target_keys(rule, self._row):
            row = target.get(key)
            if row is not None:
                yield row


def _plain_part(row: Row) -> Row:
    """What of a row can be handed out as it is. Mostly that is all."""
    if _SCALARS.issuperset(map(type, row.values())):
        return row
    return {column: value for column, value in row.items() if type(value) in _SCALARS}


class TableView(_View, Mapping[str, RowView]):
    """One table, as a policy sees it. A look-up reads whether a row is there; a walk reads which ones are."""

    __slots__ = ("_at_hand", "_name", "_reads", "_seen", "_table", "_tables")

    def __init__(self, tables: "Tables", name: str, table: Table) -> None:
        self._tables = ref(tables)  # weak, so that an old state goes at once
        self._reads = tables._reads
        self._name = name
        self._table = table
        self._seen: dict[str, RowView] = {}
        self._at_hand = self._seen if self._reads is None else {}
        """What is handed out at once. Under a record nothing is."""

    def __getitem__(self, key: str) -> RowView:
        row: RowView | None = self.get(key)
        if row is None:
            raise KeyError(key)
        return row

    def get(self, key: Any, default: Any = None) -> Any:
        """The row under the key. A value that can be no key (a null, a list) is in no table."""
        try:
            if type(key) is str:
                return self._at_hand[key]
        except KeyError:
            pass
        row_key = key_of(key)
        if row_key is None:
            return default
        if self._reads is not None:
            self._reads.row(self._name, row_key)
            if row_key in self._seen:
                return self._seen[row_key]
        row = self._table.rows.get(row_key)
        if row is None:
            return default
        view = RowView(self._tables, self._reads, self._name, row_key, row)
        if len(self._seen) < _MOST_KEPT_VIEWS:
            self._seen[row_key] = view
        return view

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        self._read_keys()
        return iter(self._table.sorted_keys)

    def __len__(self) -> int:
        self._read_keys()
        return len(self._table.rows)

    def _read_keys(self) -> None:
        if self._reads is not None:
            self._reads.row(self._name, ALL_KEYS)

    def __repr__(self) -> str:
        return f"<table {self._name}>"


class Tables(_View):
    """The tables and rules, as a policy sees them: `tables.plans["basic"]` or `tables["plans"]["basic"]`.

    Without a record they can be kept as long as their state and serve every request.
    """

    def __init__(self, state: State, reads: Reads | None = None) -> None:
        vars(self).update(_state=state, _reads=reads, _views={})

    _state: State
    _reads: Reads | None
    _views: dict[str, TableView]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a policy cannot change the tables, as by setting {name}")

    def __getattr__(self, name: str) -> TableView:
        try:
            view = self[name]
        except KeyError as absent:
            raise AttributeError(*absent.args) from None
        if self._reads is None:
            self.__dict__[view._name] = view  # found there next time, without a call
        return view

    def __contains__(self, name: object) -> bool:
        is_there = _name(name) in self._state.tables
        if not is_there:
            self.report_untracked(f"whether there is a table {name}")
        return is_there

    def __getitem__(self, name: str) -> TableView:
        table = _name(name) or ""  # which is the name of no table
        view = self._views.get(table)
        if view is None:
            if table not in self._state.tables:
                # no version tells of one that is not there
                self.report_untracked(f"whether there is a table {name}")
                raise KeyError(_Sentence(f"there is no table called {name}"))
            view = self._views[table] = TableView(self, table, self._state.tables[table])
        return view

    def has_rule(self, from_table: str, relation: str) -> bool:
        """Whether a rule called `relation` leaves `from_table`."""
        return self._rule(from_table, relation) is not None

    def report_untracked(self, what: str) -> None:
        """Say that the policy has read something that no table version vouches for: its fix is never kept."""
        if self._reads is not None:
            self._reads.untracked = what

    def _rule(self, from_table: str, relation: str) -> Rule | None:
        table, name = _name(from_table), _name(relation)
        if table is None or name is None:
            return None
        if self._reads is not None:
            self._reads.rule(table, name)
        return self._state.rules.find(table, name)

    def _tell_of_no_rule(self, table: str, relation: str) -> None:
        """A policy that follows what was never declared mostly has a name wrong, and then never finds anything."""
        rules = self._state.rules
        if rules.is_never_declared(table, relation):
            declared = ", ".join(rule.relation for rule in rules.leaving(table)) or "none"
            _log.warning(
                "a policy follows %r from a row of the table %s, and no rule there is called so (there: %s):"
                " it finds no row until one is declared; if that is meant, ask has_rule first",
                relation,
                table,
                declared,
            )
