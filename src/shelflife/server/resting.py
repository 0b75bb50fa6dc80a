"""What rests on a row: the policies that have read it for a fix, and how many of the fixes that were given still stand."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from shelflife.contract import Suggestion
from shelflife.contract.cells import ALL_KEYS, Cells, united
from shelflife.contract.messages import PolicyResting, Resting
from shelflife.contract.names import node_id
from shelflife.contract.positions import Position
from shelflife.contract.preconditions import Precondition
from shelflife.server.faces import Face
from shelflife.server.log import check_over
from shelflife.server.policies import Violation
from shelflife.server.state import State

__all__ = ["GivenFixes"]

_MOST_FIXES = 4096
_encode = msgspec.json.Encoder(order="sorted").encode


class _Fix(NamedTuple):
    """A fix that was given."""

    policy: str
    grounds: Suggestion
    number: int
    digest: str
    """Where in the log that was."""


class GivenFixes:
    """The latest fixes that this process has given. The same fix counts once, however often it was given."""

    def __init__(self) -> None:
        self._fixes: dict[bytes, _Fix] = {}

    def note(self, violations: Iterable[Violation], state: State) -> None:
        """Fixes are given that come of a state. Threads need not wait for each other: each step is done at once or not at all."""
        for policy, fix in violations:
            if fix.cells:
                told = _encode((policy.id, fix.type, fix.parameters, fix.when, fix.unless or {}))
                name = hashlib.blake2b(told, digest_size=16).digest()
                self._fixes.pop(name, None)
                self._fixes[name] = _Fix(policy.id, fix, state.number, state.digest)
        while len(self._fixes) > _MOST_FIXES:
            with suppress(KeyError, RuntimeError):
                del self._fixes[next(iter(self._fixes))]

    def resting_on(self, table: str, key: str | None, state: State, face: Face) -> Resting:
        """What rests on a row, or on anything in a table. Fixes whose grounds have moved are forgotten."""
        read: dict[str, list[Cells]] = {}
        for name, fix in list(self._fixes.items()):
            cells = fix.grounds.cells or {}
            if not _has_read(cells, table, key):
                continue
            at = str(Position(fix.number, check_over(state.log_id, fix.digest)))
            rules, policies = fix.grounds.rules or (), (face.words.policy(fix.policy),)
            if face.meets(Precondition(at=at, cells=cells, rules=rules, policies=policies)):
                read.setdefault(fix.policy, []).append(cells)
            else:
                self._fixes.pop(name, None)
        policies_resting = {
            policy: PolicyResting(fixes=len(every), columns=_columns_in(united(every), table, key))
            for policy, every in sorted(read.items())
        }
        row = table if key is None else node_id(table, key)
        return Resting(row=row, fixes=sum(map(len, read.values())), policies=policies_resting)


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
