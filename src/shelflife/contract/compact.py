"""The compact form: what goes on the wire to a client that says which state it knows.

A client names the state that it knows by its epoch. A server at that state answers with `"epoch": 1` in place of the stamps, one that has
moved on with what has moved since, and one that cannot tell with the full form. Both sides work the epoch out from the versions, so it
is never sent to tell it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract.errors import BadMessage
from shelflife.contract.messages import Changes, Counts, RulesChanges, Suggestion, TableChanges, TableVersion
from shelflife.contract.names import node_id, split_node_id
from shelflife.contract.rules import Rule
from shelflife.contract.versions import Versions

__all__ = [
    "EPOCH_HEADER",
    "CompactSuggestion",
    "Moved",
    "MovedRules",
    "MovedTable",
    "changes_of",
    "compacted",
    "expanded",
    "moved_between",
]

EPOCH_HEADER = "Contract-Epoch"

_LONGEST_GROUNDS = 16 * 1024
"""As in the full form, where they are part of what may be so large."""

_SHORT = re.compile(r"([0-9]{1,5})(?:([:=>])(.*))?", re.DOTALL)
_encode = msgspec.json.Encoder(order="sorted").encode


class MovedTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table that is at another version than the client knows; without the lists, the server cannot tell which rows."""

    version: str | None
    """The version now; null when the table is not loaded any more."""

    known: bool = True
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    affected_downstream: tuple[str, ...] = ()
    counts: Counts | UnsetType = UNSET
    """In place of the lists, for a client that is not shown keys; `known` is then false."""


class MovedRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules, when they are others than the client knows."""

    version: str
    known: bool = True
    added: tuple[Rule, ...] = ()
    removed: tuple[Rule, ...] = ()
    counts: Counts | UnsetType = UNSET


class Moved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has moved between the state that a client knows and the one that a response is of."""

    tables: dict[str, MovedTable] = {}
    rules: MovedRules | None = None


class CompactSuggestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A suggestion without what follows from the state, from its grounds or from its parameters.

    Tables are named by their number among the names of all tables, sorted.
    """

    type: str
    parameters: dict[str, Any]
    cache_hint: Literal["cacheable", "recompute"] = "cacheable"
    tables: tuple[int, ...] = ()
    """The tables that it depends on, where its grounds do not tell."""

    on: tuple[str, ...] | UnsetType = UNSET
    """Its rows and then its rules: `2` for a whole table, `2:key` for a row, `2=field` for the row whose key is the value of a field of `when`,
    else of `parameters`, and `2>relation` for a rule."""

    when: dict[str, Any] | UnsetType = UNSET
    unless: dict[str, tuple[Any, ...]] | UnsetType = UNSET
    """Absent beside grounds it stands for the parameters that are not in `when`, and empty for none at all."""


def compacted(suggestion: Suggestion, tables: Iterable[str]) -> CompactSuggestion:
    """A suggestion for a client that knows the state it is of; `tables` are those of the state."""
    numbers = {name: number for number, name in enumerate(sorted(tables))}
    rows, when, unless = suggestion.rows or (), suggestion.when or {}, suggestion.unless or {}
    by_value = {value: field for field, value in _texts(suggestion).items()}
    short_rows = (_short(row, ":", numbers, by_value) for row in rows)
    short_rules = (_short(rule, ">", numbers, {}) for rule in suggestion.rules or ())
    is_implied = not rows or _encode(unless) == _encode(_not_yet(suggestion.parameters, when))
    follows_from_rows = set(_tables_in(rows)) == set(suggestion.depends_on)
    return CompactSuggestion(
        type=suggestion.type,
        parameters=suggestion.parameters,
        cache_hint=suggestion.cache_hint,
        tables=() if follows_from_rows else tuple(numbers[table] for table in suggestion.depends_on),
        on=(*short_rows, *short_rules) if rows else UNSET,
        when=suggestion.when,
        unless=UNSET if is_implied else unless,
    )


def _short(node: str, mark: str, numbers: Mapping[str, int], by_value: Mapping[str, str]) -> str:
    table, key = split_node_id(node)
    if key is None:
        return f"{numbers[table]}"
    field = by_value.get(key)
    return f"{numbers[table]}{mark}{key}" if field is None else f"{numbers[table]}={field}"


def expanded(suggestion: CompactSuggestion, table_versions: Mapping[str, str]) -> Suggestion:
    """The suggestion as the full form has it, but for the order of its tables; the versions are those of the state it is of."""
    names = sorted(table_versions)
    texts = _texts(suggestion)
    try:
        nodes = []
        length = 0
        for short in suggestion.on or ():
            nodes.append(_long(short, names, texts))
            length += len(nodes[-1][0])
            if length > _LONGEST_GROUNDS:
                raise BadMessage(f"the suggestion {suggestion.type} rests on too much")
        told = tuple(names[number] for number in suggestion.tables if number >= 0)
    except (IndexError, KeyError):
        raise BadMessage(f"the suggestion {suggestion.type} rests on what is not there") from None
    rows = tuple(node for node, is_rule in nodes if not is_rule)
    rules = tuple(node for node, is_rule in nodes if is_rule)
    depends_on = told or _tables_in(rows)
    unless = suggestion.unless
    if unless is UNSET and rows:
        unless = _not_yet(suggestion.parameters, suggestion.when or {})
    return Suggestion(
        type=suggestion.type,
        parameters=suggestion.parameters,
        cache_hint=suggestion.cache_hint,
        table=depends_on[-1] if depends_on else UNSET,
        tables=tuple(TableVersion(table=name, version=table_versions[name]) for name in depends_on) or UNSET,
        rows=rows or UNSET,
        rules=rules or UNSET,
        when=suggestion.when,
        unless=unless or UNSET,
    )


def _long(short: str, names: Sequence[str], texts: Mapping[str, str]) -> tuple[str, bool]:
    """What is meant, and whether it is a rule."""
    found = _SHORT.fullmatch(short)
    if found is None:
        raise BadMessage("what a suggestion rests on cannot be read")
    table, mark, rest = names[int(found[1])], found[2], found[3]
    if mark == "=":
        return node_id(table, texts[rest]), False
    return node_id(table, rest) if mark else table, mark == ">"


def moved_between(known: Versions, changes: Changes) -> Moved:
    """What a client that knows these versions has to be told; `changes` are those since then of all that has moved."""
    tables = {name: MovedTable(**_told(told)) for name, told in changes.tables.items()}
    tables |= {
        name: MovedTable(version=version, known=False)
        for name, version in changes.table_versions.items()
        if name not in known.tables
    }
    rules = changes.rules
    if not rules or rules.version == known.rules:
        return Moved(tables=tables)
    return Moved(tables=tables, rules=MovedRules(**_told(rules)))


def _told(changes: TableChanges | RulesChanges) -> dict[str, Any]:
    """What is told of changes to a client that has said since when."""
    told = msgspec.structs.asdict(changes)
    return {name: value for name, value in told.items() if name != "since" and value is not UNSET}


def changes_of(base: Versions, moved: Moved) -> Changes:
    """What has moved, in the words of `GET /contract/changes`, for a client that knows these versions."""
    tables = {
        name: TableChanges(since=base.tables[name], **_in_full(table))
        for name, table in moved.tables.items()
        if name in base.tables
    }
    versions = {**base.tables, **{name: table.version for name, table in moved.tables.items()}}
    rules: RulesChanges | UnsetType = UNSET
    if moved.rules is not None and base.rules is not None:
        rules = RulesChanges(since=base.rules, **_in_full(moved.rules))
    return Changes(
        tables=tables,
        rules=rules,
        table_versions={name: version for name, version in versions.items() if version is not None},
        rules_version=(moved.rules.version if moved.rules else base.rules) or UNSET,
    )


def _in_full(moved: MovedTable | MovedRules) -> dict[str, Any]:
    """What has moved, with lists that are absent where it is not known and not empty ones."""
    if moved.known:
        return msgspec.structs.asdict(moved)
    return {"version": moved.version, "known": False, "counts": moved.counts}


def _texts(suggestion: Suggestion | CompactSuggestion) -> dict[str, str]:
    """The fields whose values may be keys."""
    fields = {**suggestion.parameters, **(suggestion.when or {})}
    return {field: value for field, value in fields.items() if isinstance(value, str)}


def _not_yet(parameters: Mapping[str, Any], when: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What a policy that asks for these values has mostly looked at beside `when`: that the request does not have them yet."""
    return {name: (value,) for name, value in parameters.items() if name not in when}


def _tables_in(rows: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(split_node_id(row)[0] for row in rows))
