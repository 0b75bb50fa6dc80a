"""The fixes that the memory benchmarks remember: about 300 bytes each, each resting on two of fifty tables and on one row.

Fix number n is the answer to request number n. Most have a row of their own; one in twenty shares its row with 9 others and one in
twenty with 999, all of them scattered over the store as they would be after months of learning.
"""

from typing import Any

import msgspec

from shelflife.client import Entry, Exchange, Fetched, Store
from shelflife.client.decisions import tags_of
from shelflife.client.entries import Knowledge

__all__ = [
    "OPERATION",
    "ORIGIN",
    "evicting",
    "fill",
    "fix",
    "request",
    "row_key",
    "shared_rows",
    "table_of_row",
    "teaching",
    "unchanged",
    "versions",
]

ORIGIN = "https://api.example.com"
OPERATION = "POST /subscriptions"
RULES_VERSION = "4f53cda18c2b"
_TABLE_COUNT = 50
_TABLES = tuple(f"reference_table_{number:02d}" for number in range(_TABLE_COUNT))
_SHARING_EVERY = 20
_WRITTEN_AT_ONCE = 50_000
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
    row = row_key(number, size)
    table = table_of_row(row)
    return Entry(
        origin=ORIGIN,
        operation=OPERATION,
        type="USE_REQUIRED_PROMO",
        parameters={"promo_code": _code(number)},
        when={"customer": f"cus_{number:08d}", "plan": f"plan_{number % 1000:03d}"},
        unless={"promo_code": (_code(number),)},
        tables=(_TABLES[table], _TABLES[(table + 1 + number % (_TABLE_COUNT - 1)) % _TABLE_COUNT]),
        rows=(f"{_TABLES[table]}:{row}",),
        rules=(),
        learned_at=1_700_000_000.0 + number,
    )


def row_key(number: int, size: int) -> str:
    """The row that fix `number` rests on."""
    for sharer_count, lane in ((10, 1), (1000, 2)):
        row_count = size // _SHARING_EVERY // sharer_count
        nth = number // _SHARING_EVERY
        if number % _SHARING_EVERY == lane and nth < row_count * sharer_count:
            return f"shared-{sharer_count}-{nth % row_count}"
    return f"own-{number}"


def shared_rows(sharer_count: int, size: int) -> list[str]:
    """The rows on which just so many fixes rest."""
    if sharer_count == 1:
        return [f"own-{number}" for number in range(0, size, _SHARING_EVERY)]
    return [f"shared-{sharer_count}-{row}" for row in range(size // _SHARING_EVERY // sharer_count)]


def table_of_row(row: str) -> int:
    """The table that has the row."""
    return int(row.rpartition("-")[2]) % _TABLE_COUNT


def versions(moved_counts: dict[int, int] | None = None) -> dict[str, str]:
    """The versions of all tables, after each has moved so many times."""
    moved = moved_counts or {}
    return {name: f"1.0.{moved.get(table, 0)}-9f3c21ab" for table, name in enumerate(_TABLES)}


def fill(store: Store, size: int) -> None:
    """Put fixes 0 to `size` into the store, past the memory: a million responses would take their time."""
    knowledge = Knowledge(versions(), RULES_VERSION)
    for first in range(0, size, _WRITTEN_AT_ONCE):
        entries = (fix(number, size) for number in range(first, min(first + _WRITTEN_AT_ONCE, size)))
        put = [(entry, tags_of(entry)) for entry in entries]
        if store.write(ORIGIN, store.known(ORIGIN).revision, knowledge, put=put) is None:
            raise RuntimeError("somebody else has written to the store")


def unchanged(moved_counts: dict[int, int] | None = None) -> Exchange:
    """A success with the stamps of all fifty tables."""
    return _exchange(request(0), 201, success=True, table_versions=versions(moved_counts))


def teaching(number: int, size: int) -> Exchange:
    """A rejection that gives fix `number`."""
    entry = fix(number, size)
    now = versions()
    suggestion = {
        "type": entry.type,
        "parameters": entry.parameters,
        "cache_hint": "cacheable",
        "table": entry.tables[0],
        "tables": [{"table": table, "version": now[table]} for table in entry.tables],
        "rows": entry.rows,
        "when": entry.when,
        "unless": entry.unless,
    }
    feedback = {"suggestions": [suggestion]}
    return _exchange(request(number), 422, success=False, recovery_feedback=feedback, table_versions=now)


def evicting(row: str, moved_counts: dict[int, int]) -> tuple[Exchange, Fetched]:
    """A success from which a memory sees that a table has moved, and the server's answer when asked which row it was."""
    table = table_of_row(row)
    name = _TABLES[table]
    before = versions(moved_counts)
    moved_counts[table] = moved_counts.get(table, 0) + 1
    now = versions(moved_counts)
    told = {"since": before[name], "version": now[name], "known": True, "changed": [row]}
    changes = {"tables": {name: told}, "table_versions": now}
    return unchanged(moved_counts), Fetched(200, msgspec.json.encode(changes))


def _exchange(fields: dict[str, Any], status: int, **body: Any) -> Exchange:
    body["rules_version"] = RULES_VERSION
    return Exchange(ORIGIN, OPERATION, fields, status, _JSON, msgspec.json.encode(body))


def _code(number: int) -> str:
    return f"SUMMER25-{number:08d}"
