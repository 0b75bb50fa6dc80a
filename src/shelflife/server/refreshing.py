"""Tables that are read again from where they live: when somebody asks, or when it is time."""

import logging
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import NamedTuple

from shelflife.contract.messages import ReloadReport
from shelflife.forks import Locking
from shelflife.server.declaring import MOST_READINGS, GivenTables, TableSource, read_source
from shelflife.server.delta import Row
from shelflife.server.errors import BadSetting, Overtaken, ReloadRefused, SourceError, UnknownTable
from shelflife.server.registry import Registry

__all__ = ["Refresher", "Scheduled", "every"]

_log = logging.getLogger("shelflife")
_LONGEST_END_S = 5.0
"""So long at most a source that is being read holds up the end of an app."""

_LONGEST_PERIOD_S = 31 * 24 * 3600
"""No system can wait without end. Whoever needs no schedule gives the source alone."""


class Scheduled(NamedTuple):
    """A source that is read again after each period, for as long as an app runs."""

    source: TableSource
    period_s: float

    def __call__(self) -> Mapping[str, Row] | Awaitable[Mapping[str, Row]]:
        return self.source()


def every(seconds: float, source: TableSource) -> Scheduled:
    """Have a source read again every so many seconds, a month at most, while an app runs. Each worker process does so.

    Only a change is logged.
    """
    if not isinstance(seconds, int | float):
        raise BadSetting("every takes the seconds first and then the source, as in every(60, csv_file(…))")
    if not 0 < seconds <= _LONGEST_PERIOD_S:
        raise BadSetting(f"a table is refreshed every so many seconds, a month at most, not every {seconds}")
    return Scheduled(source, seconds)


class Refresher(Locking):
    """Reads tables again from their sources: when somebody asks, or when it is time.

    What is scheduled has a thread for each table, so that a slow source holds up no other.
    """

    def __init__(self, registry: Registry, given: GivenTables) -> None:
        self._registry = registry
        self._sources: dict[str, TableSource] = {}
        self.add(given)
        self._begin()
        super().__init__()

    def add(self, given: GivenTables) -> None:
        """Know those of the tables that were given as sources."""
        sources = {table: source for table, source in given.items() if callable(source)}
        self._sources = self._sources | sources  # another one: somebody may be going through them

    def refresh(
        self, table: str, version: str | None = None, by: str = "", ending: Event | None = None
    ) -> ReloadReport:
        """Read a table again, and reload it; but not when `ending` was set meanwhile.

        When others have changed the table while it was read, what they have read may be newer: then it is read anew.
        """
        registry = self._registry
        if table not in registry.state.tables:
            raise UnknownTable(table)
        if table not in self._sources:
            raise ReloadRefused(f"the table {table} was not given as a source that can be read again")
        for _ in range(MOST_READINGS):
            registry.catch_up()
            seen = registry.state.tables[table]
            rows = read_source(table, self._sources[table])
            if ending is not None and ending.is_set():
                raise SourceError(f"the table {table} was read too late: its app has ended")
            with suppress(Overtaken):
                return registry.reload_table(table, rows, version=version, seen=seen, by=by)
        raise Overtaken(f"others have changed the table {table} whenever it was read; try again")

    def start(self) -> None:
        """Begin with those that are scheduled, unless they have begun in this process. Requests that come at once all do this."""
        with self._lock:
            for table, source in self._sources.items():
                if isinstance(source, Scheduled) and table not in self._threads:
                    given = (table, source.period_s, self._ending)
                    name = f"shelflife-refresh-{table}"
                    thread = Thread(target=self._run, args=given, name=name, daemon=True)
                    thread.start()
                    self._threads[table] = thread

    def stop(self) -> None:
        """Refresh nothing more by itself. A source that is being read is waited for, but not for long: what it gives
        after that is left alone."""
        with self._lock:
            ending, threads = self._ending, self._threads
            self._begin()
        ending.set()
        until = time.monotonic() + _LONGEST_END_S
        for thread in threads.values():
            thread.join(max(0.0, until - time.monotonic()))

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self._begin()  # no thread is there any more

    def _begin(self) -> None:
        self._threads: dict[str, Thread] = {}
        self._ending = Event()

    def _run(self, table: str, period_s: float, ending: Event) -> None:
        is_failing = False
        while not ending.wait(period_s):
            try:
                self.refresh(table, ending=ending)
            except BaseException as error:  # noqa: BLE001 - whatever it is, nobody else would find out
                if not is_failing and not ending.is_set():
                    sentence = "the table %s stays as it is, and is tried again every %g s: %s"
                    _log.warning(sentence, table, period_s, str(error) or repr(error))
                is_failing = True
            else:
                if is_failing:
                    _log.warning("the table %s is refreshed again", table)
                is_failing = False
