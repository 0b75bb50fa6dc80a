"""The memory: recall, amend, observe, revalidate, refresh, forget. It owns no storage, and does no I/O but through its store and `ask`."""

from __future__ import annotations  # so that help() names types as they are written here

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import nullcontext
from functools import partial
from os import PathLike
from typing import Any, ParamSpec, Self, TypeVar

from shelflife.client.asking import (
    LEAST_FAILURE,
    AnyAsk,
    Ask,
    Exchange,
    Fields,
    Reply,
    Steps,
    Watch,
    driven,
    driven_async,
    watched,
)
from shelflife.client.channels import TOOL
from shelflife.client.client_asking import HttpClient, ask_of
from shelflife.client.diary import KeepsDiary
from shelflife.client.entries import Entry, Knowledge, Root, root_at
from shelflife.client.events import Event, Reason
from shelflife.client.explaining import Explained, explained
from shelflife.client.foresight import Foresight, Lookout
from shelflife.client.guard import Amended, AnyGuard, Guard, amend
from shelflife.client.in_process import InProcessStore
from shelflife.client.moments import Remote
from shelflife.client.observing import Observing
from shelflife.client.opening import Closeable, store_at
from shelflife.client.positions import Place, new_mark
from shelflife.client.revalidating import Revalidating
from shelflife.client.shelf import Outcome, Shelf, Step, Usable
from shelflife.client.steps import Words
from shelflife.client.stores import Known, Store, Write
from shelflife.client.strategies import EVERYTHING, EXACT, SUSPECT, Strategy
from shelflife.client.telling import Statistics, Telling
from shelflife.client.writing import MOST_EVICTIONS, Writing, departures

__all__ = ["Memory"]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_ANY_TIME = nullcontext()


def _is_never_clear(_: Root) -> bool:
    """Of a memory that foresees: what is due depends on the request and on the time."""
    return False


def _check_fields(request: object) -> None:
    """Of whatever a program without types hands in, such as JSON that is not decoded."""
    if not isinstance(request, Mapping):
        raise TypeError(
            f"the fields of a request are a mapping, as in {{'plan': 'basic'}}, and not {type(request).__name__}"
        )


class Memory:
    """What an agent holds across episodes.

    `recall` or `amend` before a request, `observe` after its reply. A root may be spelled in any way that a URL may be. Whatever the store or the server does, none of them fails and none gives
    a fix that is known to be stale.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        ask: AnyAsk | HttpClient | None = None,
        trust: Words | None = None,
        capacity: int | None = 100_000,
        most_evictions: int | None = MOST_EVICTIONS,
        on_event: Callable[[Event], None] | None = None,
        strategy: Strategy = EXACT,
        foresight: Foresight | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A memory over a store; without one, in this process alone.

        - `store` is where entries are kept, as `Memory.at` finds it; by default in this process alone.
        - `ask` puts questions to servers: a function, or a client of httpx2, httpx, requests or aiohttp. Without it a table that moved is
          evicted whole. An async one is for the verbs that end in `_async`.
        - `trust` names the keys that must vouch for the states of some servers; see `shelflife.integrations.ed25519.trust`.
        - `capacity` is how many entries of each root are kept; those that were not used for the longest time leave first. None for any number.
        - `most_evictions` is how many entries of one server may be invalidated within an hour. Beyond it they are kept as suspects, which
          are not used until they are revalidated. None for any number.
        - `on_event` is told everything that happens; what it raises is logged and goes no further.
        - `strategy` says what a change means for an entry. By default one goes when a cell or rule that it rests on has changed.
        - `clock` tells the time of day, in seconds since 1970.
        - `foresight` decides whether to ask before use, by when things were seen to change; see `Forecast`. Without it nothing of that is kept.
        """
        given: object = store  # whatever a program without types hands in
        if isinstance(given, str | PathLike):
            where = "…" if "@" in str(given) else str(given)  # there may be a password in it
            raise TypeError(f"a memory is kept in a store: Memory.at({where!r})")
        for name, bound in (("most_evictions", most_evictions), ("capacity", capacity)):
            if not (bound is None or (type(bound) is int and bound >= 0)):
                raise ValueError(f"{name} is a whole number from 0 on, or None for any number")
        if foresight is not None and (isinstance(foresight, type) or not hasattr(foresight, "is_due")):
            raise TypeError(
                f"foresight is a Forecast(), or has an is_due as that has, and is not {foresight!r}"
            )
        self.store: Store = InProcessStore() if store is None else store
        self.ask = None if ask is None else ask_of(ask)
        """Puts questions to servers, where nobody else does."""
        diary = self.store.diary if isinstance(self.store, KeepsDiary) else None
        self.telling = Telling(on_event, clock, diary)
        """What it tells and counts; whoever else wants to listen is added to its `listeners`."""
        self._shelf = Shelf(self.store, strategy, trust, self.telling, clock)
        writing = Writing(self._shelf, capacity, most_evictions, clock)
        lookout = None if foresight is None else Lookout(foresight, clock)
        self._observing = Observing(self._shelf, writing, clock, lookout)
        self._revalidating = Revalidating(self._shelf, self._observing, lookout, clock)
        self.is_remote = isinstance(self.store, Remote)
        """Whether its store is on another machine. Then whoever must not wait uses it in a thread, and each step is one moment of it."""
        self.observing = self._observing.observing
        """What `observe` does, as steps, for whoever answers its questions in a way of their own. The root is as `root_of` spells it."""
        self.is_clear = self._shelf.is_clear if foresight is None else _is_never_clear
        """Whether nothing that is remembered of a root has to be revalidated before it is used, whatever the request."""
        self.revalidating = self._revalidating.revalidating
        """What `revalidate` does, in the same way."""
        self.refreshing = self._revalidating.refreshing
        """What `refresh` does, in the same way."""
        self._doubting = self._revalidating.doubting
        self.hearing = self._revalidating.hearing
        """What `hear` does, in the same way."""
        self.root_of = self._shelf.root_of
        """Where the contract lives that a URL is under, as far as replies have told: the origin, or a path on it."""
        self.heard_from: dict[Root, str] = {}
        """By roots that are names: the origin from which a contract was first heard of in this process."""
        self.heard_in_metadata: set[Root] = set()
        """The roots of which metadata has come through in this process: what a text says is not theirs."""

    @classmethod
    def at(
        cls, where: str | PathLike[str], *, namespace: str | None = None, near: bool = False, **settings: Any
    ) -> Self:
        """A memory at a place: a file (`memory.db` or `sqlite:///memory.db`), or an engine that agents on many machines share
        (`postgresql://…`, `redis://…`, `rediss://…`).

        Those who share an engine are kept apart by a `namespace`. With `near` what was looked at is kept and used without asking the engine,
        as long as that tells of what others write. All other settings are those of a memory. Nothing is opened yet.
        """
        return cls(store_at(where, namespace=namespace, near=near), **settings)

    def close(self) -> None:
        """Let go of the file or the connections of its store, until they are needed again."""
        self.telling.write_diary()
        if isinstance(self.store, Closeable):
            self.store.close()

    def tool(
        self,
        root: Root,
        *,
        operation: str | None = None,
        guard: Guard | None = TOOL.guard,
        conditional: bool = TOOL.conditional,
        ask: AnyAsk | HttpClient | None = None,
    ) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
        """For a function that is a tool, blocking or async: it is called with what is remembered, and its outcome is learned from.

        The settings are those of `Tools`. The operation is `CALL /` and the name of the function, unless it is said otherwise.
        """
        from shelflife.client.tooling import Tools, name_of  # which stands on this module

        given: object = root  # whatever a program without types hands in
        if not isinstance(given, str):
            raise TypeError('a tool is of a server, which needs a name: @memory.tool("tool://billing")')

        def behind_the_memory(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
            operations = {} if operation is None else {name_of(function): operation}
            tools = Tools(self, root, operations=operations, guard=guard, conditional=conditional, ask=ask)
            return tools.wrap(function)

        return behind_the_memory

    def in_moments(
        self,
        steps: Generator[Step, Reply | None, Outcome],
        root: Root,
        operation: str,
        request: Fields,
    ) -> Generator[Step, Reply | None, Outcome]:
        """Steps about a request, each in one moment of a store that is on another machine."""
        return self._shelf.in_moments(steps, self._shelf.wanted(root, operation, request, (SUSPECT,)))

    def watch_questions(self, watch: Watch) -> None:
        """Have every question to a server go by way of `watch`, which may add headers to it and sees what is answered."""
        for name in ("observing", "revalidating", "refreshing", "_doubting", "hearing"):
            setattr(self, name, watched(getattr(self, name), watch))

    @property
    def statistics(self) -> Statistics:
        """Counts since this memory was made."""
        return self.telling.statistics

    def recall(self, root: Root, operation: str, request: Fields) -> list[Entry]:
        """The fixes that hold for this request and may be used now, oldest first.

        There are none while it is being found out what a movement of the server's data makes stale. When that fails there are none
        until a later reply of the server has been dealt with.
        """
        root = root_at(root)
        if type(request) is not dict:
            _check_fields(request)
        found = self._shelf.usable(root, operation, request)
        self.telling.count(root, "hits" if found else "misses")
        return found

    def amend(self, root: Root, operation: str, request: Fields, guard: AnyGuard | None = None) -> Amended:
        """The request with the remembered fixes that hold for it already in it, as far as the guard allows."""
        root = root_at(root)
        if type(request) is not dict:
            _check_fields(request)
        shelf = self._shelf
        with shelf.moment(shelf.wanted(root, operation, request)) if self.is_remote else _ANY_TIME:
            amended = amend(request, partial(self._shelf.usable, root, operation), guard or Guard())
        found: list[Event] = [*amended.refused, *amended.applied]
        self.telling.count(root, "hits" if found else "misses")
        if found:
            self.telling.tell(found)
        return amended

    def why(self, root: Root, operation: str, request: Fields, guard: Guard | None = None) -> list[Explained]:
        """All that is remembered of a server, and of each whether it would be used for this request now, or else why not.

        It only looks. What it says of a doubt is what this memory knows: another process may have one of its own.
        """
        found: list[Explained] = []
        if type(request) is not dict:
            _check_fields(request)
        with self.telling.failing("read"):
            found.extend(explained(self._shelf, root_at(root), operation, request, guard or Guard()))
        return found

    def observe(self, exchange: Exchange, ask: Ask | None = None) -> list[Event]:
        """Learn from a reply: drop what it shows to be stale, keep the fixes it gives. Returns what happened."""
        return driven(self._observed(exchange), ask or self.ask)

    async def observe_async(self, exchange: Exchange, ask: AnyAsk | None = None) -> list[Event]:
        """The same, awaiting `ask` when it is async. A store of this machine is used directly: its verbs take microseconds."""
        return await driven_async(self._observed(exchange), ask or self.ask, is_remote=self.is_remote)

    def _observed(self, exchange: Exchange) -> Steps[list[Event]]:
        root = root_at(exchange.root)
        if root != exchange.root:
            exchange = exchange._replace(root=root)
        wanted = None
        if (
            exchange.reply.status >= LEAST_FAILURE
        ):  # it may teach something, among what is there for the request
            wanted = self._shelf.wanted(exchange.root, exchange.operation, exchange.request)
        return self._shelf.in_moments(self.observing(exchange), wanted)

    def revalidate(
        self,
        root: Root,
        operation: str,
        request: Fields,
        ask: Ask | None = None,
        guard: AnyGuard | None = None,
    ) -> list[Event]:
        """Before `recall` or `amend`: when something that this request finds is suspect, ask the server about exactly this request.

        What it gives again can be recalled; what it does not give again goes. Without an answer it stays suspect. The same goes for what
        the request will find once it is amended, as far as the guard allows. Returns what happened.
        """
        return driven(self._revalidated(root, operation, request, guard), ask or self.ask)

    async def revalidate_async(
        self,
        root: Root,
        operation: str,
        request: Fields,
        ask: AnyAsk | None = None,
        guard: AnyGuard | None = None,
    ) -> list[Event]:
        """The same, awaiting `ask` when it is async."""
        steps = self._revalidated(root, operation, request, guard)
        return await driven_async(steps, ask or self.ask, is_remote=self.is_remote)

    def _revalidated(
        self, root: Root, operation: str, request: Fields, guard: AnyGuard | None
    ) -> Steps[list[Event]]:
        root = root_at(root)
        steps = self.revalidating(root, operation, request, guard)
        return self.in_moments(steps, root, operation, request)

    def refresh(self, root: Root, ask: Ask | None = None) -> list[Event]:
        """Ask a server whether what is known of it still holds, as before an episode. Returns what happened.

        What does not hold is dropped, and the server is asked what has taken its place, so that no request has to fail for it.
        """
        return driven(self._refreshing(root), ask or self.ask)

    async def refresh_async(self, root: Root, ask: AnyAsk | None = None) -> list[Event]:
        """The same, awaiting `ask` when it is async."""
        return await driven_async(self._refreshing(root), ask or self.ask, is_remote=self.is_remote)

    def _refreshing(self, root: Root) -> Steps[list[Event]]:
        return self._shelf.in_moments(self.refreshing(root_at(root)))

    def doubting(self, root: Root, why: str) -> Steps[list[Event]]:
        """A use of what is remembered has failed, and nobody has said why: the server is asked before any of it is used again. As steps."""
        return self._shelf.in_moments(self._doubting(root_at(root), why))

    def hear(self, root: Root, told: bytes, ask: Ask | None = None, *, at: str | None = None) -> list[Event]:
        """Take in what an event of a server's change feed says, and renew as `refresh` does.

        `at` is what the request for the feed had in `Contract-At`.
        """
        return driven(self._hearing(root, told, at), ask or self.ask)

    async def hear_async(
        self, root: Root, told: bytes, ask: AnyAsk | None = None, *, at: str | None = None
    ) -> list[Event]:
        """The same, awaiting `ask` when it is async."""
        return await driven_async(self._hearing(root, told, at), ask or self.ask, is_remote=self.is_remote)

    def _hearing(self, root: Root, told: bytes, at: str | None) -> Steps[list[Event]]:
        return self._shelf.in_moments(self.hearing(root_at(root), told, at))

    def contract_at(self, root: Root, *, asking: bool = False) -> str:
        """What to say in the header `Contract-At` of a request, so that the server tells what has moved, and no more.

        The `Exchange` that is observed afterwards must have it too. With `asking` it is a question whether anything is in doubt or not.
        """
        return self._shelf.at(root_at(root), asking=asking)

    def position(self, root: Root) -> str | None:
        """The position in a server's log that is known, for a precondition; None when there is none, or it is in doubt."""
        root = root_at(root)
        knowledge = self._shelf.knowledge(root)
        is_known = knowledge is not None and isinstance(self._shelf.standing_of(root, knowledge), Usable)
        return knowledge.place.at if knowledge is not None and is_known else None

    def knows_versions(self, root: Root) -> bool:
        """Whether a server is known by its versions, and not by a position: it knows only the paper."""
        knowledge = self._shelf.knowledge(root_at(root))
        return knowledge is not None and knowledge.place.at is None and bool(knowledge.versions.tables)

    def forget(
        self, root: Root, operation: str | None = None, type: str | None = None, *, id: str | None = None
    ) -> int:
        """Drop the entries of a server, or of one operation or type of it, or those whose id begins so; tells how many there were.

        With all of a server goes what is known of its state, and which signed state was seen.
        """
        root = root_at(root)
        is_all = (operation, type, id) == (None, None, None)

        def decide(known: Known) -> Write | None:
            doomed = [
                entry.id
                for entry in self.store.tagged(root, *EVERYTHING)
                if operation in (None, entry.operation)
                and type in (None, entry.type)
                and entry.id.startswith(id or "")
            ]
            knowledge = Knowledge(place=Place(mark=new_mark())) if is_all else known.knowledge
            is_anything_done = doomed or knowledge != known.knowledge
            return Write(knowledge, drop_ids=doomed) if is_anything_done else None

        written = self._shelf.rewrite(root, decide)
        if written is None:
            return 0
        if is_all:
            self._observing.begin_anew(root)
        self.telling.tell(
            departures(written, dict.fromkeys((id for _, id in written.dropped), Reason.FORGOTTEN))
        )
        return len(written.dropped)
