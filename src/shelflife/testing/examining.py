"""A policy on the bench: what it reads and says for a request, and whether the record of its reads is complete."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shelflife.contract import Rule, Suggestion, same_json
from shelflife.contract.cells import ALL_KEYS, Cells
from shelflife.contract.when import holds
from shelflife.policy_code import PolicyCode
from shelflife.server import Fix, Registry, Request, ServerError, Tables
from shelflife.server.policies import Policy, evaluate
from shelflife.server.reads import Reads

__all__ = ["Examined", "check_record", "examine"]

_GONE = object()
_NEW = "something-new"
_ODD_VALUES: tuple[Any, ...] = (None, "", _NEW, 0, -1, True, [], {})
_MOST_AT_ONCE = 8

PolicyFunction = Callable[[Request, Tables], Fix | None]
Rows = Mapping[str, dict[str, Any]]
World = dict[str, Any]
"""The tables, the request and the rules by name."""
Path = tuple[str, ...]
Change = tuple[Path, Any]
"""What is set, and to which value; `_GONE` takes it away."""


class Examined(NamedTuple):
    """What a policy did with a request."""

    suggestion: Suggestion | None
    """What it would say; None when all is well."""

    cells: Cells
    """What it read of the tables, by table, key and column."""

    rules: tuple[str, ...]
    """The rules that it asked for, as `table:relation`."""

    when: dict[str, Any]
    """The fields of the request that it read, with their values."""

    unless: dict[str, tuple[Any, ...]]
    """The values that fields were found not to have, where no more was read of them."""

    untracked: tuple[str, ...]
    """What its code reads that no version tells of, a sentence each."""


def examine(
    policy: PolicyFunction, tables: Mapping[str, Rows], request: Mapping[str, Any], rules: Iterable[Rule] = ()
) -> Examined:
    """Run a policy on a request, and tell what it read and what it would say."""
    code = PolicyCode(policy)
    state = Registry(tables, rules).state
    found = evaluate([Policy(policy, None, policy.__name__, code=code)], request, state)
    reads = Reads()
    policy(Request(request, reads), Tables(state, reads))
    untracked = [*code.untracked, *([reads.untracked] if reads.untracked else [])]
    return Examined(
        found[0].suggestion if found else None,
        reads.cells,
        tuple(reads.rules),
        *reads.conditions(request),
        tuple(untracked),
    )


def check_record(
    policy: PolicyFunction,
    tables: Mapping[str, Rows],
    request: Mapping[str, Any],
    rules: Iterable[Rule] = (),
    *,
    seed: int = 0,
    mixed_count: int = 200,
) -> None:
    """Raise an `AssertionError` when a fix depends on something that is not on record.

    Every cell, row, rule and field is changed, one at a time, then several at once. Wherever nothing on record has
    changed, the policy must say the same. The changes depend on the `seed` alone. Take tables of a few rows, and a
    request that the policy refuses. A fix that is not to be kept needs no record.
    """
    if complaints := PolicyCode(policy).untracked:
        raise AssertionError(f"the policy reads what no version vouches for: {'; '.join(complaints)}")
    expected = examine(policy, tables, request, rules := tuple(rules)).suggestion
    if expected is None:
        raise ValueError("the policy has nothing to say about this request, so there is no record to check")
    if expected.cache_hint != "cacheable":
        return
    world: World = {
        "tables": {name: {key: dict(row) for key, row in rows.items()} for name, rows in tables.items()},
        "request": dict(request),
        "rules": {rule.id: rule for rule in rules},
    }
    for changes in _mixed(list(_changes(world)), random.Random(seed), mixed_count):  # noqa: S311
        changed = world
        for path, value in changes:
            changed = _with(changed, path, value)
        if not _is_on_record(expected, world, changed) and (said := _said(policy, changed)) != _told(
            expected
        ):
            what = " and ".join(f"{'/'.join(path)} is {_shown(value)}" for path, value in changes)
            raise AssertionError(
                f"the policy says {_told(expected)}, and {said} when {what}, which is not on record"
            )


def _mixed(singles: list[Change], chance: random.Random, count: int) -> Iterator[list[Change]]:
    """Each change alone, then several at once."""
    yield from ([single] for single in singles)
    for _ in range(count):
        yield chance.sample(singles, min(chance.randint(2, _MOST_AT_ONCE), len(singles)))


def _changes(world: World) -> Iterator[Change]:
    for table, rows in world["tables"].items():
        columns: dict[str, list[Any]] = {_NEW: []}
        for row in rows.values():
            for column, value in row.items():
                columns.setdefault(column, []).append(value)
        for key in rows:
            yield ("tables", table, key), _GONE
            for column, values in columns.items():
                yield from (
                    (("tables", table, key, column), value) for value in (_GONE, *_ODD_VALUES, *values)
                )
        yield from ((("tables", table, _NEW), row) for row in ({}, *rows.values()))
    yield from _changes_of_fields(world["request"], ("request",))
    yield from ((("rules", id), _GONE) for id in world["rules"])


def _changes_of_fields(fields: Mapping[str, Any], path: Path) -> Iterator[Change]:
    for name in (*fields, _NEW):
        yield from (((*path, name), value) for value in (_GONE, *_ODD_VALUES, *fields.values()))
        if isinstance(fields.get(name), Mapping):
            yield from _changes_of_fields(fields[name], (*path, name))


def _with(tree: Any, path: Path, value: Any) -> Any:
    """A tree with another value at a path. What is not there any more cannot be changed."""
    name, *rest = path
    if not isinstance(tree, Mapping):
        return tree
    if rest:
        return {**tree, name: _with(tree[name], tuple(rest), value)} if name in tree else tree
    return {**{one: tree[one] for one in tree if one != name}, **({} if value is _GONE else {name: value})}


def _is_on_record(suggestion: Suggestion, old: World, new: World) -> bool:
    """Whether anything that a suggestion rests on is different."""
    if not holds(suggestion.when or {}, new["request"], suggestion.unless or {}):
        return True
    if any(old["rules"].get(id) != new["rules"].get(id) for id in suggestion.rules or ()):
        return True
    return not same_json(*(_cells_in(world["tables"], suggestion.cells or {}) for world in (old, new)))


def _cells_in(tables: Mapping[str, Any], cells: Cells) -> list[Any]:
    """What cells hold."""
    held: list[Any] = []
    for table, read in cells.items():
        rows = tables[table]
        if read is None:
            held.append(rows)
            continue
        for key, columns in read.items():
            row = rows.get(key)
            if key == ALL_KEYS:
                held.append(sorted(rows))
            elif row is None or columns is None:
                held.append(row)
            else:
                held.append({column: row[column] for column in columns if column in row})
    return held


def _said(policy: PolicyFunction, world: World) -> str:
    try:
        registry = Registry({name: {} for name in world["tables"]}, world["rules"].values())
        for name, rows in world["tables"].items():  # a reload may leave no row with the column of a rule
            registry.reload_table(name, rows)
        found = evaluate([Policy.from_function(policy, None)], world["request"], registry.state)
    except ServerError as error:
        return f"fails ({error})"
    return _told(found[0].suggestion) if found else "nothing"


def _told(suggestion: Suggestion) -> str:
    return f"{suggestion.type} {json.dumps(suggestion.parameters, sort_keys=True)}"


def _shown(value: Any) -> str:
    return "gone" if value is _GONE else repr(value)
