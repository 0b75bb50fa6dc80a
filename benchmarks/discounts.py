"""The table that the reload benchmarks change, ten rows at a time."""

from typing import Any

from shelflife.server import ReloadReport

__all__ = ["CHANGED_COUNT", "TABLE", "Rows", "changed", "check_report", "discounts", "spread_keys"]

TABLE = "discounts"
CHANGED_COUNT = 10
"""How many rows every reload changes."""

Rows = dict[str, dict[str, Any]]


def discounts(count: int) -> Rows:
    """Rows as a JSON decoder gives them: every one an object of its own."""
    return {
        f"key-{number:07d}": {
            "code": f"CODE-{number:07d}",
            "plan": f"plan_{number % 1000:03d}",
            "percent_off": number % 100,
            "is_active": True,
        }
        for number in range(count)
    }


def spread_keys(rows: Rows) -> list[str]:
    """The keys to change, evenly spread over the table."""
    return list(rows)[:: len(rows) // CHANGED_COUNT][:CHANGED_COUNT]


def changed(rows: Rows, keys: list[str], percent_off: int) -> Rows:
    """The rows under these keys with another value."""
    return {key: {**rows[key], "percent_off": percent_off} for key in keys}


def check_report(report: ReloadReport) -> None:
    """Make sure that the reload has done what is being measured."""
    if len(report.changed) != CHANGED_COUNT or report.added or report.removed:
        raise RuntimeError(f"a reload has changed {len(report.changed)} rows instead of {CHANGED_COUNT}")
