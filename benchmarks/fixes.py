"""The fixes that the memory benchmarks remember: about 300 bytes each, each resting on two of fifty tables and on one row.

Fix number n is the answer to request number n. Most have a row of their own; one in twenty shares its row with 9 others and one in
ten with 999, all of them scattered over the store as they would be after months of learning.
"""

import random
from typing import Any

import msgspec

from shelflife.client import (
    EXACT,
    Condition,
    Entry,
    Exchange,
    Filed,
    Grounds,
    Knowledge,
    Reply,
    Store,
    Write,
)
from shelflife.client.positions import Place
from shelflife.client.strategies import row_tag
from shelflife.contract.versions import Versions

__all__ = [
    "AGREED",
    "OPERATION",
    "ORIGIN",
    "Telling",
    "evicting",
    "fill",
    "fix",
    "number_that_stays",
    "numbers_resting_on",
    "request",
    "row_node",
    "row_tag_of",
    "rows_with",
    "teaching",
    "unchanged",
]

ORIGIN = "https://api.example.com:443"
OPERATION = "POST /subscriptions"
RULES_VERSION = "4f53cda18c2b"
_TABLE_COUNT = 50
_TABLES = tuple(f"reference_table_{number:02d}" for number in range(_TABLE_COUNT))
_SHARING = {10: (20, 1), 1000: (10, 2)}
"""By the number of fixes that share a row: every how many fixes there is one that shares, and with which remainder."""
_JSON = {"content-type": "application/json"}


def request(number: int) -> dict[str, Any]:
    """A request that fix `number` is for."""
    return {
        "customer": f"cus_{number:08d}",
        "plan": f"plan_{number % 1000:03d}",
        "amount": 12000,
        "currency": "usd",
        "payment_method_token": "pm_visa_credit",
    }


def fix(number: int, size: int) -> Entry:
    """What is remembered for that request, in a memory of this size."""
    row = _row_key(number, size)
    table = _table_of_row(row)
    return Entry(
        root=ORIGIN,
        operation=OPERATION,
        type="USE_REQUIRED_PROMO",
        parameters={"promo_code": _code(number)},
        condition=Condition(
            {"customer": f"cus_{number:08d}", "plan": f"plan_{number % 1000:03d}"},
            {"promo_code": (_code(number),)},
        ),
        grounds=Grounds(
            (_TABLES[table], _TABLES[(table + 1 + number % (_TABLE_COUNT - 1)) % _TABLE_COUNT]),
            {_TABLES[table]: {row: ("code",)}},
            (),
        ),
        learned_at=1_700_000_000.0 + number,
    )


def _row_key(number: int, size: int) -> str:
    """The row that fix `number` rests on."""
    for sharer_count, (every, remainder) in _SHARING.items():
        row_count = size // every // sharer_count
        nth = number // every
        if number % every == remainder and nth < row_count * sharer_count:
            return f"shared-{sharer_count}-{nth % row_count}"
    return f"own-{number}"


def rows_with(fix_count: int, size: int) -> list[str]:
    """Rows on which just so many fixes rest: some of those with one, all of those with more."""
    if fix_count == 1:
        return [f"own-{number}" for number in range(0, size, _SHARING[10][0])]
    return [f"shared-{fix_count}-{row}" for row in range(size // _SHARING[fix_count][0] // fix_count)]


def number_that_stays(chance: random.Random, size: int) -> int:
    """A fix at random that rests on none of these rows."""
    return chance.randrange(size // 10) * 10 + chance.randrange(3, 10)


def numbers_resting_on(row: str, size: int) -> list[int]:
    """The fixes that rest on a shared row."""
    _, fix_count, nth = row.split("-")
    every, remainder = _SHARING[int(fix_count)]
    row_count = size // every // int(fix_count)
    return [(int(nth) + row_count * step) * every + remainder for step in range(int(fix_count))]


def row_node(row: str) -> str:
    """The row as `table:key`."""
    return f"{_TABLES[_table_of_row(row)]}:{row}"


def row_tag_of(row: str) -> str:
    """The tag under which stores know what rests on the row."""
    return row_tag(_TABLES[_table_of_row(row)], row)


def _table_of_row(row: str) -> int:
    """The table that has the row."""
    return int(row.rpartition("-")[2]) % _TABLE_COUNT


def _versions(moved_counts: dict[int, int] | None = None) -> dict[str, str]:
    """The versions of all tables, after each has moved so many times."""
    moved = moved_counts or {}
    return {name: f"1.0.{moved.get(table, 0)}-9f3c21ab" for table, name in enumerate(_TABLES)}


def filed(entry: Entry) -> Filed:
    """An entry as a memory files it."""
    filed = EXACT.files(entry)
    return Filed(filed.entry, filed.slot, ("all", *filed.tags))


def fill(store: Store, size: int, at_once: int = 50_000, known: Knowledge | None = None) -> None:
    """Put fixes 0 to `size` into the store, past the memory: a million responses would take their time."""
    by_versions = Knowledge(versions=Versions(_versions(), RULES_VERSION), strategy=EXACT.name)
    knowledge = known or by_versions
    for first in range(0, size, at_once):
        entries = (fix(number, size) for number in range(first, min(first + at_once, size)))
        write = Write(knowledge, put=[filed(entry) for entry in entries])
        if store.write(ORIGIN, store.known(ORIGIN).revision, write) is None:
            raise RuntimeError("somebody else has written to the store")


def unchanged(moved_counts: dict[int, int] | None = None) -> Exchange:
    """A success with the stamps of all fifty tables."""
    return _exchange(request(0), 201, success=True, table_versions=_versions(moved_counts))


def teaching(number: int, size: int, moved_counts: dict[int, int] | None = None) -> Exchange:
    """A rejection that gives fix `number`."""
    entry = fix(number, size)
    now = _versions(moved_counts)
    tables = [{"table": table, "version": now[table]} for table in entry.grounds.tables]
    suggestion = _suggestion(entry) | {"tables": tables}
    feedback = {"suggestions": [suggestion]}
    return _exchange(request(number), 422, success=False, recovery_feedback=feedback, table_versions=now)


def evicting(row: str, moved_counts: dict[int, int]) -> tuple[Exchange, Reply]:
    """A success from which a memory sees that a table has moved, and the server's answer when asked which row it was."""
    table = _table_of_row(row)
    name = _TABLES[table]
    before = _versions(moved_counts)
    moved_counts[table] = moved_counts.get(table, 0) + 1
    now = _versions(moved_counts)
    told = {
        "since": before[name],
        "version": now[name],
        "known": True,
        "added": [],
        "removed": [],
        "changed": [row],
        "columns": {row: ["code"]},
    }
    changes = {"tables": {name: told}, "table_versions": now}
    return unchanged(moved_counts), Reply(200, msgspec.json.encode(changes))


AGREED = Knowledge(place=Place(at="xyG7aX0", mark="9f3c21"), strategy=EXACT.name)
"""What is known of a server that tells its position."""


class Telling:
    """A server that tells where it is in its log, to an agent that does too. What has moved is in its replies, and need not be asked."""

    def __init__(self) -> None:
        self._change_count = 0

    def teaching(self, number: int, size: int) -> Exchange:
        """A rejection that gives fix `number`."""
        feedback = {"suggestions": [_suggestion(fix(number, size))]}
        body = {"success": False, "recovery_feedback": feedback, "at": self._position}
        return self._exchange(request(number), 422, body, self._position)

    def evicting(self, row: str) -> Exchange:
        """A success that tells which row has changed."""
        before = self._position
        self._change_count += 1
        moved = {_TABLES[_table_of_row(row)]: {"changed": [row], "columns": {row: ["code"]}}}
        since = f"{before}:{AGREED.place.mark}"
        told = {"to": self._position, "from": since, "moved": {"tables": moved}}
        return self._exchange(request(0), 201, {"success": True, "at": told}, before)

    @property
    def _position(self) -> str:
        return f"xyG7aX{self._change_count}"

    def _exchange(self, fields: dict[str, Any], status: int, body: dict[str, Any], named: str) -> Exchange:
        reply = Reply(status, msgspec.json.encode(body), _JSON)
        return Exchange(ORIGIN, OPERATION, fields, reply, at=f"{named}:{AGREED.place.mark}")


def _suggestion(entry: Entry) -> dict[str, Any]:
    """What a server says that has versions to say."""
    return {
        "type": entry.type,
        "parameters": entry.parameters,
        "cache_hint": "cacheable",
        "table": entry.grounds.tables[0],
        "tables": [{"table": table, "version": "1.0.0-9f3c21ab"} for table in entry.grounds.tables],
        "rows": entry.grounds.rows,
        "cells": entry.grounds.cells,
        "when": entry.condition.when,
        "unless": entry.condition.unless,
    }


def _exchange(fields: dict[str, Any], status: int, **body: Any) -> Exchange:
    body["rules_version"] = RULES_VERSION
    return Exchange(ORIGIN, OPERATION, fields, Reply(status, msgspec.json.encode(body), _JSON))


def _code(number: int) -> str:
    return f"SUMMER25-{number:08d}"
