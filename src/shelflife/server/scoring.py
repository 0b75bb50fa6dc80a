"""Watching clients: what each of them makes of the fixes that it is given, as far as a server sees that.

Nothing of a request is kept but digests with a key. One that is let through, and has come of late, is only counted until workers meet or
somebody wants to know. What is kept is bounded, and so is the time that it takes: when there are too many requests that are unlike the
latest, some of them are not looked at.
"""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

import msgspec

from shelflife.contract import Suggestion
from shelflife.contract.cells import Cells
from shelflife.contract.when import names_in
from shelflife.forks import Forked, mind_forks
from shelflife.server.log import Entry
from shelflife.server.policies import Violation
from shelflife.server.reads import Request
from shelflife.server.registry import Registry
from shelflife.server.resting import Ground, grounds_of, has_moved
from shelflife.server.sharing import Shared
from shelflife.server.state import State
from shelflife.server.verdicts import (
    Cell,
    ClientScore,
    Given,
    Lesson,
    Requests,
    Seen,
    added_up,
    end_oldest,
    score_of,
)

__all__ = ["Clients", "Scoring"]

_log = logging.getLogger("shelflife")

_MOST_LESSONS = 1024
_MOST_CLIENTS = 1024
_MOST_CELLS = 8
_MOST_VALUES = 8
_MOST_SHAPES = 64
_MOST_POLICIES = 512
_MOST_AT_ONCE = 1000
_MOST_A_SECOND = 50
"""So many requests are looked at in the long run. It bounds what it costs a busy server; a quiet one sees all of them."""

_MOST_REPEATED = 256
_MOST_NAMES = 1024
_SHARED_EVERY_S = 2.0
_CREDENTIALS = ("authorization", "x-api-key")
_ANONYMOUS = "anonymous"
_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode

Shape = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""A policy, the type of a fix, the fields by which requests are like each other, and those that the fix sets."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scoring:
    """Clients are scored by what comes of the fixes that they are given."""

    client: Callable[[Mapping[str, str]], str] | None = None
    """Names the client from the headers of its request (by lower-case name). By default it is a digest of the `Authorization` or
    `X-API-Key` header. All who send neither are one client."""


class _Repeated(msgspec.Struct, eq=False):
    """A request that was let through, as often as it has come of late."""

    client: str
    like: list[tuple[tuple[str, str], Cell, str]]
    """Where it is counted: in which lessons, and as what."""
    count: int = 1


class Clients(Forked):
    """What one process has seen of clients, and of the fixes that they are given."""

    def __init__(self, scoring: Scoring, key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        """`key` goes into all digests. Workers that share a log have the same one."""
        self._scoring, self._clock = scoring, clock
        self._key = hashlib.sha256(key).digest()
        self._has_warned = False
        self.reads = None if scoring.client else frozenset(name.encode() for name in _CREDENTIALS)
        """The headers that say who is asking, by lower-case name; None where it may be any."""
        self.after_fork_in_child()
        mind_forks(self)

    def after_fork_in_child(self) -> None:
        """Begin with nothing: what the parent has seen is the parent's."""
        self._lock = threading.Lock()
        self._noted_at, self._left = 0.0, float(_MOST_AT_ONCE)
        self._begin("")

    def _begin(self, log_id: str) -> None:
        self._log_id = log_id
        """The log that the places are in; empty where no state was looked at yet."""
        self._shared = Shared("clients", Seen, _SHARED_EVERY_S)
        self._lessons: OrderedDict[tuple[str, str], Lesson] = OrderedDict()
        """By client and what is the same for like requests; the one that was used last is the last."""
        self._grounds: dict[tuple[str, str], tuple[frozenset[Ground], int, int]] = {}
        """What each rests on, the last change of that, and up to where the log was looked at for it."""
        self._shapes: dict[str, dict[str, dict[Shape, Any]]] = {}
        """The shapes of the fixes that a client was given, by operation; each with a digest that begins with it."""
        self.counted: dict[tuple[str, str], dict[str, None]] = {}
        """The fields that these are about, by client and operation. Where there are none, it need not be noted what is let through."""
        self._requests: OrderedDict[str, Requests] = OrderedDict()
        """What came of the requests of each client; the one that was seen last is the last."""
        self._fixes: dict[str, dict[str, Given]] = {}
        """What the fixes of each policy set and rest on, by type."""
        self._moved: dict[str, tuple[int, float]] = {}
        """When each table has moved last: where in the log, and at which time."""
        self._looked_at = 0
        self._names: dict[int, str] = {}
        """What clients are called, by the hash of their credentials: it has a secret of this process in it."""
        self._repeated: dict[tuple[str, str, int], _Repeated] = {}
        """Requests of late that were let through, by client, operation and the hash of what they have sent of which it counts."""
        self._repeated_in: State | None = None
        """The state that all of them were let through in."""

    def note(
        self,
        headers: Callable[[], Mapping[str, str]],
        operation: str | None,
        fields: Mapping[str, Any],
        found: Iterable[Violation],
        state: State,
    ) -> None:
        """A request was checked, and these policies have refused it. Whatever goes wrong here is not the request's fault.

        Of one that was let through, the fields may be as policies see them: mostly it is only counted, and need not be looked into.
        """
        try:
            if not found:
                self._note_passed(headers, operation or "", fields, state)
            elif (now := self._room_at()) is not None:
                client = self._name_of(headers())
                with self._lock:
                    self._count_repeated()
                    self._look_at(state)
                    if any(fix.cells and fix.tables for _, fix in found):
                        self._note_request(client, refused=1)
                    for violation in found:
                        self._note_refused(client, operation or "", fields, violation, state, now)
        except Exception as error:  # noqa: BLE001 - whoever names clients may fail in any way
            if not self._has_warned:
                self._has_warned = True
                _log.warning("requests are not counted for their clients: %s", error)

    def _room_at(self) -> float | None:
        """The time, if there is room for one more request that has to be looked at."""
        now = self._clock()
        self._left = min(_MOST_AT_ONCE, self._left + max(0.0, now - self._noted_at) * _MOST_A_SECOND)
        self._noted_at = now
        if self._left < 1:
            return None
        self._left -= 1
        return now

    def seen(self) -> Seen:
        """A copy of what was seen, to be read and written down."""
        with self._lock:
            self._count_repeated()
            clients: dict[str, dict[str, Lesson]] = {}
            for (client, like), lesson in self._lessons.items():
                clients.setdefault(client, {})[like] = lesson
            return added_up([Seen(self._fixes, clients, self._requests)])

    def meet(self, registry: Registry, *, now: bool = False) -> None:
        """Share what was seen with the other workers, if it is time for that, and learn what they have told clients."""
        with self._lock:
            self._count_repeated()
        self._shared.meet(registry, self.seen, self.learn, now=now)

    def others(self, registry: Registry) -> list[Seen]:
        """What other workers have shared."""
        return self._shared.others(registry)

    def learn(self, others: Iterable[Seen]) -> None:
        """What other workers have told clients, so that it is known here when it comes back."""
        with self._lock:
            self._count_repeated()
            for one in others:
                for client, lessons in one.clients.items():
                    for like, lesson in lessons.items():
                        if (client, like) not in self._lessons and len(self._lessons) < _MOST_LESSONS:
                            bare = msgspec.structs.replace(lesson, cells={}, earlier={**lesson.earlier})
                            self._keep(client, like, bare)

    def scores(self, others: Iterable[Seen] = ()) -> list[ClientScore]:
        """What all clients come to, with what other workers have seen."""
        whole = added_up([self.seen(), *others])
        scores = [
            score_of(client, whole.clients.get(client, {}), came) for client, came in whole.requests.items()
        ]
        return sorted(scores, key=lambda one: (-one.in_all.passed - one.in_all.refused, one.client))

    def fixes(self, others: Iterable[Seen] = ()) -> dict[str, dict[str, Given]]:
        """What the fixes of each policy are like, by type, with what other workers have seen."""
        with self._lock:
            return added_up([Seen(self._fixes), *(Seen(one.fixes) for one in others)]).fixes

    def _name_of(self, headers: Mapping[str, str]) -> str:
        if self._scoring.client is not None:
            return str(self._scoring.client(headers))[:200]
        for name in _CREDENTIALS:
            if credentials := headers.get(name):
                hashed = hash((name, credentials))
                known = self._names.get(hashed)
                if known is None:
                    raw = f"{name}: {credentials}".encode(errors="surrogateescape")
                    known = hashlib.blake2b(raw, key=self._key, digest_size=6).hexdigest()
                    if len(self._names) >= _MOST_NAMES:
                        self._names = {}
                    self._names[hashed] = known
                return known
        return _ANONYMOUS

    def _look_at(self, state: State) -> None:
        """Note which tables have moved since a state was looked at last."""
        if self._log_id not in ("", state.log_id):
            self._begin(state.log_id)
        self._log_id = state.log_id
        if state.number > self._looked_at:
            for entry in _since(state, self._looked_at):
                self._moved |= dict.fromkeys(entry.change.tables, (entry.number, entry.at))
            self._looked_at = state.number

    def _note_refused(
        self,
        client: str,
        operation: str,
        fields: Mapping[str, Any],
        violation: Violation,
        state: State,
        now: float,
    ) -> None:
        policy, fix = violation
        self._note_fix(policy.id, fix)
        self._shared.is_changed = True
        if not fix.cells or not fix.tables:
            return
        sets = tuple(sorted(fix.parameters))
        read = {names_in(path)[0] for path in (*(fix.when or ()), *(fix.unless or ())) if path}
        shape = policy.id, fix.type, tuple(sorted(read - {*sets})), sets
        like = self._like(operation, shape, fields)
        place = client, like
        lesson = self._lessons.get(place)
        if lesson is None:
            lesson = Lesson(operation, *shape, tuple(sorted(fix.cells)))
            self._keep(client, like, lesson)
        self._lessons.move_to_end(place)
        grounds = frozenset(
            grounds_of(policy.id, fix.cells, fix.rules or ())
        )  # what it rested on before says whether that has changed since
        self._grounds.setdefault(place, (grounds, 0, 0))
        cell, carried = self._cell(place, lesson, state), self._carried(fields, sets)
        self._grounds[place] = grounds, *self._grounds[place][1:]
        cell.told = self._carried(fix.parameters, sets)
        if _add(cell.refused, carried):
            cell.last_refused_at[carried] = now
        lesson.adds = lesson.adds or any(
            fields.get(name) is None and value is not None for name, value in fix.parameters.items()
        )

    def _note_passed(
        self,
        headers: Callable[[], Mapping[str, str]],
        operation: str,
        fields: Mapping[str, Any],
        state: State,
    ) -> None:
        """A request was let through. It counts if the client was given a fix for one like it."""
        if not self.counted or (self.reads is None and self._room_at() is None):
            return  # nobody knows how long it takes to tell who is asking
        client = self._name_of(headers())
        names = self.counted.get((client, operation))
        if names is None:
            return
        sent = client, operation, hash(_encode([*map(fields.get, names)]))
        with self._lock:
            if state is not self._repeated_in:
                self._count_repeated()
                self._repeated_in = state
            repeated = self._repeated.get(sent)
            if repeated is not None:
                repeated.count += 1
            elif self.reads is None or self._room_at() is not None:
                self._look_at(state)
                if len(self._repeated) >= _MOST_REPEATED:
                    self._count_repeated()
                looked_into = fields._fields if isinstance(fields, Request) else fields
                self._repeated[sent] = _Repeated(
                    client, self._like_ones(client, operation, looked_into, state)
                )

    def _like_ones(
        self, client: str, operation: str, fields: Mapping[str, Any], state: State
    ) -> list[tuple[tuple[str, str], Cell, str]]:
        """Where it is counted that a request was let through: the lessons for requests like it, each with what it has carried."""
        found = []
        for shape, begun in self._shapes.get(client, {}).get(operation, {}).items():
            digest = begun.copy()
            digest.update(_encode([fields.get(name) for name in shape[2]]))
            place = client, digest.hexdigest()
            lesson = self._lessons.get(place)
            if lesson is not None:
                found.append((place, self._cell(place, lesson, state), self._carried(fields, lesson.sets)))
        return found

    def _count_repeated(self) -> None:
        """Count what was let through since this was done last. No lesson may change before: these are counted for what they were then."""
        repeated, self._repeated = self._repeated, {}
        for one in repeated.values():
            for place, cell, carried in one.like:
                _add(cell.passed, carried, one.count)
                self._lessons.move_to_end(place)
            if one.like:
                self._note_request(one.client, passed=one.count)
                self._shared.is_changed = True

    def _note_request(self, client: str, *, passed: int = 0, refused: int = 0) -> None:
        """Count a request, once for however many fixes it is."""
        so_far = self._requests.pop(client, Requests())
        self._requests[client] = Requests(so_far.passed + passed, so_far.refused + refused)
        if len(self._requests) > _MOST_CLIENTS:
            self._requests.popitem(last=False)

    def _keep(self, client: str, like: str, lesson: Lesson) -> None:
        self._lessons[client, like] = lesson
        shapes = self._shapes.setdefault(client, {}).setdefault(lesson.operation, {})
        if len(shapes) < _MOST_SHAPES:
            shape = lesson.policy, lesson.type, lesson.reads, lesson.sets
            shapes[shape] = self._begun(lesson.operation, shape)
            names = self.counted.setdefault((client, lesson.operation), {})
            # Interned, as the names of a model's fields are: what is seen of a request at first is found by that.
            names.update(dict.fromkeys(map(intern, (*lesson.reads, *lesson.sets))))
        if len(self._lessons) > _MOST_LESSONS:
            (gone, of), _ = self._lessons.popitem(last=False)
            self._grounds.pop((gone, of), None)
            if not any(one == gone for one, _ in self._lessons):
                for at in self._shapes.pop(gone):
                    self.counted.pop((gone, at), None)

    def _cell(self, place: tuple[str, str], lesson: Lesson, state: State) -> Cell:
        """Where what happens to a lesson now is counted."""
        at, changed_at = max((self._moved.get(table, (0, 0.0)) for table in lesson.tables), default=(0, 0.0))
        grounds_at: int | None = None
        if place in self._grounds:
            grounds, grounds_at, seen = self._grounds[place]
            for entry in _since(state, seen):
                if any(has_moved(ground, entry.change) for ground in grounds):
                    grounds_at, changed_at = entry.number, entry.at
            self._grounds[place] = grounds, grounds_at, max(seen, state.number)
            at = max(at, grounds_at)
        if at not in lesson.cells:
            lesson.cells[at] = Cell(grounds_at, changed_at)
            if len(lesson.cells) > _MOST_CELLS:
                end_oldest(lesson)
        return lesson.cells.get(at) or Cell()  # one that is older than all that are kept is not

    def _note_fix(self, policy: str, fix: Suggestion) -> None:
        if policy not in self._fixes and len(self._fixes) >= _MOST_POLICIES:
            return
        by_type = self._fixes.setdefault(policy, {})
        if fix.type in by_type or len(by_type) < _MOST_SHAPES:
            given = by_type.setdefault(fix.type, Given())
            given.sets = tuple(sorted(fix.parameters))
            given.rests_on |= _columns_of(fix.cells or {})

    def _like(self, operation: str, shape: Shape, fields: Mapping[str, Any]) -> str:
        digest = self._begun(operation, shape)
        digest.update(_encode([fields.get(name) for name in shape[2]]))
        return str(digest.hexdigest())

    def _begun(self, operation: str, shape: Shape) -> Any:
        return hashlib.blake2b(_encode((operation, shape)), key=self._key, digest_size=8)

    def _carried(self, fields: Mapping[str, Any], sets: tuple[str, ...]) -> str:
        """The digest of what is in the fields that a fix sets. A null is as good as none."""
        return self._digest([fields.get(name) for name in sets])

    def _digest(self, told: Any) -> str:
        return hashlib.blake2b(_encode(told), key=self._key, digest_size=8).hexdigest()


def _add(counts: dict[str, int], value: str, by: int = 1) -> bool:
    """Count a value, if there is room for it."""
    has_room = value in counts or len(counts) < _MOST_VALUES
    if has_room:
        counts[value] = counts.get(value, 0) + by
    return has_room


def _since(state: State, number: int) -> list[Entry]:
    """The entries of the log after a number, as far as the state knows them."""
    behind = state.number - number
    return [one for one in state.tail[-behind:] if one.number > number] if behind > 0 else []


def _columns_of(cells: Cells) -> dict[str, tuple[str, ...] | None]:
    columns: dict[str, tuple[str, ...] | None] = {}
    for table, rows in cells.items():
        read = [] if rows is None else [*rows.values()]
        is_whole = rows is None or None in read
        columns[table] = None if is_whole else tuple(sorted({one for some in read for one in some or ()}))
    return columns
