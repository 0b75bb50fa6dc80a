"""Tables that are read again from where they live: when somebody asks, or when it is time."""

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from shelflife.server.delta import Row
from shelflife.server.errors import BadSetting, SourceError

__all__ = ["Refresher", "Scheduled", "TableSource", "every", "read_source"]

_log = logging.getLogger("shelflife")
_LONGEST_END_S = 5.0
"""So long at most a source that is being read holds up the end of an app."""

TableSource = Callable[[], Mapping[str, Row] | Awaitable[Mapping[str, Row]]]
"""Reads a table from where it lives. It may be async: then it runs in an event loop of its own."""


class Scheduled(NamedTuple):
    """A source that is read again after each period, for as long as an app runs."""

    source: TableSource
    period_s: float

    def __call__(self) -> Mapping[str, Row] | Awaitable[Mapping[str, Row]]:
        return self.source()


def every(seconds: float, source: TableSource) -> Scheduled:
    """Have a source read again every so many seconds, while an app runs. Each worker process does so; only a change is logged."""
    if not seconds > 0:
        raise BadSetting(f"a table is refreshed every so many seconds, and not every {seconds}")
    return Scheduled(source, seconds)


def read_source(table: str, source: TableSource) -> Mapping[str, Row]:
    """What a source gives; `SourceError` when it fails."""
    try:
        rows: Any = source()
        if inspect.isawaitable(rows):
            with ThreadPoolExecutor(1) as elsewhere:  # here an event loop may be running
                rows = elsewhere.submit(asyncio.run, _result_of(rows)).result()
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"the source of table {table} failed: {type(error).__name__}: {error}") from error
    checked: Mapping[str, Row] = rows
    return checked


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class Refresher:
    """Refreshes tables when it is time, each in a thread of its own, so that a slow source holds up no other."""

    def __init__(self, refresh: Callable[[str], object]) -> None:
        self._refresh = refresh
        self._threads: dict[str, threading.Thread] = {}
        self._ending = threading.Event()

    def start(self, sources: Mapping[str, TableSource]) -> None:
        """Begin with those that are scheduled, unless they have begun in this process."""
        for table, source in sources.items():
            begun = self._threads.get(table)
            if isinstance(source, Scheduled) and not (begun and begun.is_alive()):
                given = (table, source.period_s, self._ending)
                name = f"shelflife-refresh-{table}"
                self._threads[table] = threading.Thread(target=self._run, args=given, name=name, daemon=True)
                self._threads[table].start()

    def stop(self) -> None:
        """End them all. One that is in the middle of reading is waited for, but not for long."""
        self._ending.set()
        until = time.monotonic() + _LONGEST_END_S
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))
        self._threads, self._ending = {}, threading.Event()

    def _run(self, table: str, period_s: float, ending: threading.Event) -> None:
        is_failing = False
        while not ending.wait(period_s):
            try:
                self._refresh(table)
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would find out
                if not is_failing:
                    _log.warning(
                        "the table %s stays as it is, and is tried again every %g s: %s",
                        table,
                        period_s,
                        error,
                    )
                is_failing = True
            else:
                if is_failing:
                    _log.warning("the table %s is refreshed again", table)
                is_failing = False
