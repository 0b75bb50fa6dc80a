"""What rests on a row: the policies that have read it for a fix, and how many of the fixes that were told still stand."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

import msgspec

from shelflife.contract.cells import ALL_KEYS, Cells, united
from shelflife.contract.messages import PolicyResting, Resting
from shelflife.contract.names import node_id
from shelflife.forks import Forked, mind_forks
from shelflife.server.delta import Delta
from shelflife.server.errors import LogError
from shelflife.server.log import Change
from shelflife.server.policies import Violation
from shelflife.server.registry import Registry
from shelflife.server.sharing import Shared
from shelflife.server.state import State

__all__ = ["Ground", "ToldFixes", "grounds_of", "has_moved"]

_MOST_FIXES = 4096
_MOST_SHARED = 4096
"""So many fixes, with the rows that they rest on, a worker tells the others of: the latest."""

_SHARED_EVERY_S = 10.0
_encode = msgspec.json.Encoder(order="sorted").encode

Ground = tuple[str | None, ...]
"""What a fix can rest on: a column, a row, a table, a rule or the code of a policy. None stands for anything there."""

_RULES, _POLICIES = ":rules", ":policies"
"""Stand in the place of a table; none is called that."""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A fix that was told: what it rests on, and the place in the log that it is of."""

    policy: str
    cells: Cells
    rules: tuple[str, ...]
    number: int
    digest: str


class ToldFixes(Forked):
    """The latest fixes that were told. The same fix counts once, however often it was told, and by however many workers."""

    def __init__(self, key: bytes = b"") -> None:
        """`key` goes into the names of fixes, in which values of requests are. Workers that share a log have the same one."""
        self._key = hashlib.sha256(key).digest()
        self.after_fork_in_child()
        mind_forks(self)

    def after_fork_in_child(self) -> None:
        """Begin with nothing: what the parent has told is the parent's."""
        self._fixes: dict[str, Told] = {}
        self._shared = Shared("told", dict[str, Told], _SHARED_EVERY_S)

    def note(self, violations: Iterable[Violation], state: State) -> None:
        """Fixes are told that come of a state. Threads need not wait for each other: each step is done at once or not at all."""
        for policy, fix in violations:
            if fix.cells:
                told = _encode((policy.id, fix.type, fix.parameters, fix.when, fix.unless or {}))
                name = hashlib.blake2b(told, key=self._key, digest_size=16).hexdigest()
                self._fixes.pop(name, None)
                self._fixes[name] = Told(
                    policy.id, fix.cells, tuple(fix.rules or ()), state.number, state.digest
                )
                self._shared.is_changed = True
        while len(self._fixes) > _MOST_FIXES:
            with suppress(KeyError, RuntimeError):
                del self._fixes[next(iter(self._fixes))]

    def meet(self, registry: Registry, *, now: bool = False) -> None:
        """Share the latest with the other workers, if it is time for that."""
        self._shared.meet(registry, lambda: self._latest(registry.state), now=now)

    def _latest(self, state: State) -> dict[str, Told]:
        latest, size = {}, 0
        for name, told in reversed(list(self._fixes.items())):
            size += 1 + sum(map(len, filter(None, told.cells.values())))
            if size > _MOST_SHARED:
                break
            latest[name] = _with_keys(told, lambda table, key: self._written(state, table, key))
        return latest

    def _written(self, state: State, table: str, key: str) -> str:
        """How a key is told to others. One that no row has may be a value of somebody's request, and what is told is written down."""
        is_known = key == ALL_KEYS or (table in state.tables and key in state.tables[table].rows)
        return key if is_known else self._hidden(key)

    def _hidden(self, key: str) -> str:
        return f":{hashlib.blake2b(key.encode(errors='surrogatepass'), key=self._key, digest_size=16).hexdigest()}"

    def resting_on(self, table: str, key: str | None, registry: Registry) -> Resting:
        """What rests on a row, or on anything in a table."""
        read: dict[str, list[Cells]] = {}
        for told in self._standing(registry, () if key is None else [key]):
            if _has_read(told.cells, table, key):
                read.setdefault(told.policy, []).append(told.cells)
        policies_resting = {
            policy: PolicyResting(fixes=len(every), columns=_columns_in(united(every), table, key))
            for policy, every in sorted(read.items())
        }
        row = table if key is None else node_id(table, key)
        return Resting(row=row, fixes=sum(map(len, read.values())), policies=policies_resting)

    def count_on(self, table: str, keys: Collection[str], registry: Registry) -> int:
        """How many rest on any of these rows. One that rests on several counts once."""
        every = [told.cells[table] for told in self._standing(registry, keys) if table in told.cells]
        return sum(rows is None or ALL_KEYS in rows or any(key in keys for key in rows) for rows in every)

    def _standing(self, registry: Registry, keys: Collection[str]) -> Iterator[Told]:
        """The fixes of all workers that still stand, for whom these keys matter. Those whose grounds have moved are forgotten.

        The work follows the length of the log's tail and the number of fixes, and not their product.
        """
        state, every = registry.state, dict(self._fixes)
        moved_at = {ground: entry.number for entry in state.tail for ground in _moved_by(entry.change)}
        places = {(entry.number - 1, entry.previous) for entry in state.tail} | {(state.number, state.digest)}
        with suppress(LogError):  # then it is what is known here
            others = self._shared.others(registry)
            meant = self._keys_meant(state, keys) if others else {}
            for name, told in (both for one in others for both in one.items()):
                if name not in every or every[name].number < told.number:
                    every[name] = _with_keys(told, lambda _, key: meant.get(key, key))
        for name, told in every.items():
            grounds = grounds_of(told.policy, told.cells, told.rules)
            if (told.number, told.digest) in places and not any(
                moved_at.get(one, 0) > told.number for one in grounds
            ):
                yield told
            elif self._fixes.get(name) is told:  # else it was told anew meanwhile
                del self._fixes[name]

    def _keys_meant(self, state: State, keys: Iterable[str]) -> dict[str, str]:
        """Those that matter, by how they are hidden: these, and those of rows that have changed."""
        changes = (one for entry in state.tail for one in entry.change.tables.values())
        every = {*keys, *(key for one in changes for key in one.delta.after)}
        return {self._hidden(key): key for key in every}


def _with_keys(told: Told, name: Callable[[str, str], str]) -> Told:
    """A fix with other names for the rows that it rests on."""
    cells = {
        table: rows and {name(table, key): columns for key, columns in rows.items()}
        for table, rows in told.cells.items()
    }
    return msgspec.structs.replace(told, cells=cells)


def grounds_of(policy: str, cells: Cells, rules: Iterable[str]) -> Iterator[Ground]:
    """All that a fix of a policy rests on, by what was read for it."""
    yield (_POLICIES, policy)
    yield from ((_RULES, rule) for rule in rules)
    for table, rows in cells.items():
        for key, columns in ({None: ()} if rows is None else rows).items():
            yield (table, key)
            yield from ((table, key, column) for column in ((None,) if columns is None else columns))


def _moved_by(change: Change) -> Iterator[Ground]:
    for table, one in change.tables.items():
        diff = one.delta.diff
        for key in (*diff.added, *diff.removed):
            yield from ((table, None), (table, ALL_KEYS), (table, key))
        for key, columns in diff.columns.items():
            yield from ((table, None), (table, key, None), *((table, key, column) for column in columns))
    if (rules := change.rules) is not None:
        yield from ((_RULES, rule.id) for rule in (*rules.added, *rules.removed))
    if (policies := change.policies) is not None:
        yield from ((_POLICIES, id) for id, _ in policies.before.items() ^ policies.after.items())


def has_moved(ground: Ground, change: Change) -> bool:
    """Whether a change has moved this: the same as to look for it among all that has moved, without going through a large change."""
    place, key = ground[0], ground[1]
    if place in (_RULES, _POLICIES):
        return ground in _moved_by(Change(rules=change.rules, policies=change.policies))
    if place not in change.tables:
        return False
    delta = change.tables[place].delta
    if key is None:
        return bool(delta)
    if key == ALL_KEYS:
        return any(delta.before[one] is None or row is None for one, row in delta.after.items())
    before, after = delta.before.get(key), delta.after.get(key)
    if key not in delta.after or before is None or after is None:
        return key in delta.after and len(ground) == 2
    if len(ground) == 2:
        return False
    column = ground[2]
    return column is None or column in Delta({key: before}, {key: after}).diff.columns[key]


def _has_read(cells: Cells, table: str, key: str | None) -> bool:
    rows = cells.get(table, {})
    return table in cells and (rows is None or key is None or key in rows or ALL_KEYS in rows)


def _columns_in(cells: Cells, table: str, key: str | None) -> tuple[str, ...] | None:
    """The columns that were read of a row, or of any; None for all of them."""
    rows = cells[table]
    if rows is None:
        return None
    read = rows.values() if key is None else [rows.get(key, ())]
    return None if None in read else tuple(sorted({column for columns in read for column in columns or ()}))
