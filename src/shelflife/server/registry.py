"""The registry: the current state, and the only place where a version is minted."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from shelflife.contract import Rule
from shelflife.contract.messages import ReloadReport, RulesReport, Workers
from shelflife.forks import Forked, mind_forks
from shelflife.server.counting import Counts
from shelflife.server.declaring import (
    MOST_READINGS,
    Declaration,
    GivenTables,
    TableSource,
    check_columns_of,
    check_tables_of,
    digests_of,
    redeclared,
)
from shelflife.server.delta import Delta, Row
from shelflife.server.errors import LogError, Overtaken, ReloadRefused, UnknownTable, UsageError
from shelflife.server.keeping_up import STALE_FOR_S, Keeper, Looks
from shelflife.server.log import (
    Change,
    Declared,
    InProcessLog,
    Log,
    PoliciesChange,
    RulesChange,
)
from shelflife.server.reloading import changed_rules, check_given, reload_of, report_of
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.tables import Table

__all__ = ["Registry"]

Report = TypeVar("Report")

_LONG_S = 0.5
"""A log that takes longer to fail is not tried by every request."""

_LONGEST_TRY_S = 5.0
"""For so long at most is a change made anew because somebody else was faster."""


class Registry(Forked):
    """Holds the current state and swaps it whole.

    Readers take `state` once and work on that, and never wait. Changes come one after another. Each is in the log before
    anybody sees it. Registries that share a log come to the same state, each when it catches up.
    """

    def __init__(
        self,
        tables: GivenTables,
        rules: Iterable[Rule] = (),
        *,
        versions: Mapping[str, str] | None = None,
        log: Log | None = None,
        stale_for_s: float = STALE_FOR_S,
    ) -> None:
        versions = dict(versions or {})
        if unknown := sorted(versions.keys() - tables.keys()):
            raise UsageError(f"a version is given for {unknown[0]}, which is not among the tables")
        for version in versions.values():
            check_given(version)
        declaration = Declaration(tables, versions, RuleSet(rules))
        self._names = frozenset(tables)
        self.is_shared = log is not None
        """Whether others may append to the same log."""
        self._log: Log = InProcessLog() if log is None else log
        self._failure: tuple[LogError, float] | None = None
        """Why the log could not be read the last time, and until when nobody but who follows it tries again."""
        self.counts = Counts(self._log)
        """What this process has counted, of changes and of all else."""
        self._changing = threading.RLock()
        self.looks = Looks()
        """Where a verb of this is called by whoever must not wait for long."""
        self._keeper = Keeper(self._log, self._take_in, self._tell, stale_for_s)
        self._on_change: list[Callable[[], None]] = []
        told = declaration.told() if self.is_shared else {}
        self.state = self._log.open(declaration.state(), told).among(self._names)
        """The current state. Take it once per request, and never set it."""
        if self.is_shared:
            self._redeclare(declaration)
        mind_forks(self)

    def on_change(self, told: Callable[[], None]) -> None:
        """Have a function called after every change of the state, in the thread that made it."""
        self._on_change.append(told)

    def on_beat(self, told: Callable[[], None]) -> None:
        """Have a function called every half second or so, while a shared log is followed. What it raises is told once."""
        self._keeper.on_beat.append(told)

    def share(self, what: str, worker: str, seen: bytes, for_s: float) -> None:
        """Tell the others that share the log what a worker has seen of something."""
        self._log.share(f"{what} {worker}", seen, for_s)

    @property
    def worker(self) -> str:
        """Names this worker among those that follow the log."""
        return self._keeper.worker

    @property
    def unreached_s(self) -> float:
        """For how many seconds it has not seen the end of its log; 0 where nobody else appends to that."""
        return self._keeper.unreached_s

    def shared(self, what: str) -> dict[str, bytes]:
        """What each worker that shares the log has seen of something, as far as it has told."""
        begins = f"{what} "
        return {name.removeprefix(begins): seen for name, seen in self._log.shared(begins).items()}

    @property
    def is_cut_off(self) -> bool:
        """Whether it follows a log that it cannot read now."""
        return self._keeper.is_cut_off or self._keeper.is_out_of_date

    @property
    def is_out_of_date(self) -> bool:
        """Whether it could not read its log for so long that what it knows is not to be told any more as what is so."""
        return self._keeper.is_out_of_date

    def catch_up(self) -> None:
        """Take in what others have appended to the log."""
        self._check_reach()
        with self._changing:
            self._check_reach()  # whoever was in here may have found out meanwhile
            self._take_in()

    def _check_reach(self) -> None:
        """After it took long to find that the log cannot be read, nobody tries for as long again: they would wait for it in turn."""
        failure = self._failure  # once: another thread may find at any time that it can be read again
        if failure is not None and time.monotonic() < failure[1]:
            raise LogError(str(failure[0]))

    def _take_in(self) -> State:
        with self._changing:
            begun_at = time.monotonic()
            try:
                news = self._log.read(self.state.number, self.state.digest)
            except LogError as error:
                failed_at = time.monotonic()
                took_s = failed_at - begun_at
                self._failure = error, failed_at + (took_s if took_s > _LONG_S else 0.0)
                raise
            self._failure = None
            if isinstance(news, State):
                self._make_current(news.among(self._names))
            elif news:
                state = self.state
                for entry in news:
                    state = state.after(entry, self._names)
                self._make_current(state)
            return self.state

    def rows(self, name: str) -> dict[str, Row]:
        """A copy of a table's current rows, to edit and hand to `reload_table`."""
        if name not in self.state.tables:
            raise UnknownTable(name)
        return deepcopy(self.state.tables[name].rows.to_dict())

    def reload_table(
        self,
        name: str,
        rows: Mapping[str, Any] | None = None,
        *,
        set: Mapping[str, Any] | None = None,
        remove: Iterable[str] = (),
        version: str | None = None,
        replaces: str | None = None,
        seen: Table | None = None,
        by: str = "",
    ) -> ReloadReport:
        """Give a table its whole new `rows`, or `set` some rows and `remove` some keys.

        Without a `version` the table has the one that is minted for its content. Identical content is no change. With a
        `version` the table bears it from now on, even when no row changed. Rows that were read from a source, when the
        table was as `seen`, count as those of the code: at the next start only what the code then has otherwise is set
        anew. If somebody else has changed the table since, they may have read something newer: then it is `Overtaken`.
        With `replaces` it is `TableMoved`, and nothing is done, unless the table is at that version when the change is made.
        `by` says who reloads it, for the log.
        """
        declared: dict[str, Mapping[str, str]] = {}
        remove = list(remove)

        def reloading(state: State) -> tuple[Change | None, ReloadReport]:
            change = reload_of(state, name, rows, set, remove, version, replaces)
            table = state.tables[name]
            if seen is not None and table is not seen:  # its version may have come again meanwhile
                raise Overtaken(f"others have changed the table {name} since it was read")
            is_change = change.version != change.old_version
            if is_change and seen is not None and self.is_shared:
                declared[name] = digests_of(table.rows.after(change.delta))
            return Change(tables={name: change}) if is_change else None, report_of(name, change)

        return self._change(reloading, declared, by)

    def preview_table(
        self,
        name: str,
        rows: Mapping[str, Any] | None = None,
        *,
        set: Mapping[str, Any] | None = None,
        remove: Iterable[str] = (),
        version: str | None = None,
        replaces: str | None = None,
    ) -> tuple[ReloadReport, Delta]:
        """What `reload_table` would report, and the rows before and after. Nothing is changed."""
        change = reload_of(self.state, name, rows, set, list(remove), version, replaces)
        return report_of(name, change), change.delta

    def add_table(
        self, name: str, given: Mapping[str, Row] | TableSource, version: str | None = None
    ) -> None:
        """One more table. Where the log has it already, as from another worker, it is declared anew."""
        if version is not None:
            check_given(version)
        with self._changing:
            if name in self._names:
                raise ReloadRefused(f"there is a table called {name} already; reload it")
            self._names |= {name}
        try:
            declaration = Declaration({name: given}, {} if version is None else {name: version})
            with self._changing:
                if isinstance(whole := self._log.read(-1, ""), State):  # with what others have in it
                    self._make_current(whole.among(self._names))
            self._redeclare(declaration)
        except BaseException:
            with self._changing:
                self._names -= {name}
                self._make_current(self.state.among(self._names))
            raise

    def reload_rules(
        self,
        rules: Iterable[Rule] | None = None,
        *,
        add: Iterable[Rule] = (),
        remove: Iterable[Rule] = (),
        by: str = "",
    ) -> RulesReport:
        """Put all the `rules` in the place of the old ones, or `add` some and `remove` some."""
        add, remove = list(add), list(remove)
        given = None if rules is None else list(rules)
        if (given is None) == (not add and not remove):
            raise ReloadRefused("a reload takes either rules, or add and remove")

        def reloading(state: State) -> tuple[Change | None, RulesReport]:
            old = state.rules
            new = changed_rules(old, add, remove) if given is None else RuleSet(given)
            check_tables_of(new, state.tables)
            added, removed = new.added_since(old), old.added_since(new)
            check_columns_of(added, state.tables)
            report = RulesReport(
                old_version=old.version, new_version=new.version, added=added, removed=removed
            )
            return Change(rules=RulesChange(added, removed)) if new != old else None, report

        return self._change(reloading, by=by)

    def declare_policies(self, fingerprints: Mapping[str, str]) -> None:
        """These policies hold from now on."""

        def declaring(state: State) -> tuple[Change | None, None]:
            policies = PoliciesChange(dict(state.policies), dict(fingerprints))
            return Change(policies=policies) if policies.before != policies.after else None, None

        self._change(declaring)

    def follow(self) -> None:
        """From now on, and in this process, take in what others append as soon as they do. Needless where nobody else can."""
        if self.is_shared and not self._keeper.is_running:
            self._check_reach()
            with self._changing:
                self._keeper.start(self.state.number)

    @property
    def is_followed(self) -> bool:
        """Whether this process takes in what others append to a log that they share."""
        return self._keeper.is_running

    def workers(self, wait_s: float = 0.0) -> Workers:
        """How many workers follow the log, and how many of them have not come to the state that is current here.

        It waits until all have, or for so many seconds. When none is behind, none tells an older state to a request that begins after that,
        unless it says that it cannot vouch for it.
        """
        if not self.is_shared:
            return Workers(live=1, behind=0)
        return self._keeper.workers(self.state.number, wait_s)

    def close(self) -> None:
        """Let go of the log, until it is needed again."""
        self._keeper.stop()
        self._log.close()

    def after_fork_in_child(self) -> None:
        """No thread is there any more, and one may have been in the middle of a change: the log is read anew."""
        self._changing = threading.RLock()
        self._keeper.forget()

    def _change(
        self,
        make: Callable[[State], tuple[Change | None, Report]],
        declared: Declared = MappingProxyType({}),
        by: str = "",
    ) -> Report:
        """Append a change to the log, and go on to the state that it leads to. What is reported of it is handed on.

        Others may append at the same time. Whoever comes second makes the change anew, from the state that the first has left.
        """
        with self._changing:
            until = time.monotonic() + _LONGEST_TRY_S
            while time.monotonic() < until:
                self.catch_up()
                change, report = make(self.state)
                if change is None:
                    return report
                entry = replace(self.state.entry(change), at=time.time(), by=by)
                after = self.state.after(entry, self._names)
                if self._log.append(entry, after, declared):
                    self.counts.count_change(change)
                    self._make_current(after)
                    return report
        raise Overtaken("too many others are changing the tables at the same time; try again")

    def _redeclare(self, declaration: Declaration) -> None:
        """Set anew what the code declares otherwise than when it was last started.

        Two race here: this, with what it has read from a source, and others, who may have read that later and told so in the log before
        this one has looked there. So what differs is read again, and counts if the table is then still as it was `seen`. Where others
        change it each time, it stays as they leave it.
        """
        seen: Mapping[str, Table] = {}
        declared: dict[str, Mapping[str, str]] = {}

        def declaring(state: State) -> tuple[Change | None, None]:
            told, known, tables = declaration.told(), self._log.declared(), state.tables
            outrun = {
                name
                for name in declaration.sources & tables.keys()
                if told[name] != known.get(name) and tables[name] is not seen.get(name)
            }
            if outrun and is_read_again:
                raise Overtaken(f"others may have read the table {min(outrun)} later")
            declared.clear()
            declared.update((name, digests) for name, digests in told.items() if name not in outrun)
            return redeclared(state, declaration.state(), declared, known), None

        is_read_again = True
        for _ in range(MOST_READINGS):
            with suppress(Overtaken):
                self._change(declaring, declared)
                return
            seen = self.state.tables
            declaration.read_again()
        is_read_again = False
        self._change(declaring, declared)

    def _make_current(self, state: State) -> None:
        self.state = state
        self._tell()

    def _tell(self) -> None:
        for told in self._on_change:
            told()
