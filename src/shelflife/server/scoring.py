"""Watching clients: what each of them makes of the fixes that it is given, as far as a server sees that.

Nothing of a request is kept but digests with a key. One that is let through, and has come of late, is only counted until workers meet or
somebody wants to know. What is kept is bounded, and so is the time that it takes: when there are too many requests that are unlike the
latest, none is looked at for a while. So what is seen is a fair part of all: as many of those that are refused as of the others.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from sys import intern
from typing import Any

import msgspec

from shelflife.contract import Suggestion
from shelflife.contract.cells import Cells
from shelflife.contract.when import value_at
from shelflife.forks import Forked, mind_forks
from shelflife.server.lessons import (
    OTHERS,
    Cell,
    Early,
    Given,
    Lesson,
    Requests,
    Seen,
    Way,
    added_up,
    end_oldest,
    seen_in,
    told_at,
    told_in,
    written,
)
from shelflife.server.likeness import Digests, Shape, covers, leaves_of, shape_of, way_of
from shelflife.server.log import Entry
from shelflife.server.pins import Pin
from shelflife.server.policies import Violation
from shelflife.server.reads import Request
from shelflife.server.registry import Registry
from shelflife.server.resting import Ground, grounds_of, has_moved
from shelflife.server.sharing import Shared
from shelflife.server.state import State
from shelflife.server.verdicts import ClientScore, score_of

__all__ = ["ANONYMOUS", "Clients", "Scoring"]

_log = logging.getLogger("shelflife")

_MOST_LESSONS = 1024
_MOST_CLIENTS = 1024
_MOST_CELLS = 8
_MOST_VALUES = 16
_MOST_EARLY = 16
_MOST_SHAPES = 64
_MOST_POLICIES = 512
_MOST_AT_ONCE = 1000
_MOST_A_SECOND = 50
"""So many requests are looked at in the long run. It bounds what it costs a busy server; a quiet one sees all of them."""

_ENOUGH_AGAIN = 250
"""Where there was no room left, nothing is looked at or counted before there is room for so many."""

_MOST_REPEATED = 256
_MOST_NAMES = 1024
_SHARED_EVERY_S = 2.0
_CREDENTIALS = ("authorization", "x-api-key")
ANONYMOUS = "anonymous"
"""Whoever sends no credentials."""

_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


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
    first_at: float
    count: int = 1


class Clients(Forked):
    """What one process has seen of clients, and of the fixes that they are given."""

    def __init__(self, scoring: Scoring, key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        """`key` goes into all digests. Workers that share a log have the same one."""
        self._scoring, self._clock = scoring, clock
        self._digests = Digests(key)
        self._has_warned = False
        self.reads = None if scoring.client else frozenset(name.encode() for name in _CREDENTIALS)
        """The headers that say who is asking, by lower-case name; None where it may be any."""
        self.after_fork_in_child()
        mind_forks(self)

    def after_fork_in_child(self) -> None:
        """Begin with nothing: what the parent has seen is the parent's."""
        self._lock = threading.Lock()
        self._noted_at, self._left = 0.0, float(_MOST_AT_ONCE)
        self._is_resting, self._rests = False, 0
        """Whether requests are left out at the moment, and how often that was so."""
        self._rests_then = 0
        """How often it had been so when one was looked at last."""
        self._begin("")

    def _begin(self, log_id: str) -> None:
        self._log_id = log_id
        """The log that the places are in; empty where no state was looked at yet."""
        self._shared = Shared("clients", Seen, _SHARED_EVERY_S)
        self._lessons: OrderedDict[tuple[str, str], Lesson] = OrderedDict()
        """By client and what is the same for like requests; the one that was used last is the last."""
        self._used_at: dict[tuple[str, str], float] = {}
        self._grounds: dict[tuple[str, str], tuple[frozenset[Ground], int, int]] = {}
        """What each rests on, the last change of that, and up to where the log was looked at for it."""
        self._ways: dict[tuple[str, str], dict[str, tuple[frozenset[Ground], int, int]]] = {}
        """The same for each value that was replaced, of fixes that go by that."""
        self._shapes: dict[str, dict[str, dict[Shape, Any]]] = {}
        """The shapes of the fixes that a client was given, by operation; each with a digest that begins with it."""
        self.counted: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
        """The fields that these are about, and the places inside of fields, by client and operation. Where there are none, it need not be
        noted what is let through."""
        self._heard: dict[tuple[str, str], float] = {}
        """The lessons of other workers, and when each was told last, as of the latest meeting."""
        self._requests: OrderedDict[str, Requests] = OrderedDict()
        """What came of the requests of each client; the one that was seen last is the last."""
        self._known_since: dict[str, int] = {}
        """How often requests had been left out when each of them was seen first."""
        self._fixes: dict[str, dict[str, Given]] = {}
        """What the fixes of each policy set and rest on, by type."""
        self._moved: dict[str, tuple[int, float]] = {}
        """When each table has moved last: where in the log, and at which time."""
        self._looked_at = self._unsure_up_to = 0
        """Up to where the log was looked at, and up to where requests may have been left out after a change."""
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
        pin: Pin | None = None,
    ) -> None:
        """A request was checked, and these policies have refused it. Whatever goes wrong here is not the request's fault.

        Of one that was let through, the fields may be as policies see them: mostly it is only counted, and need not be looked into.
        """
        try:
            if not found:
                self._note_passed(headers, operation or "", fields, state, pin)
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
        if self._left < (_ENOUGH_AGAIN if self._is_resting else 1):
            self._rests += not self._is_resting
            self._is_resting = True
            return None
        self._is_resting = False
        self._left -= 1
        return now

    def seen(self) -> Seen:
        """A copy of what was seen, to be read and written down."""
        with self._lock:
            self._count_repeated()
            clients: dict[str, dict[str, Lesson]] = {}
            for (client, like), lesson in self._lessons.items():
                clients.setdefault(client, {})[like] = lesson
            sampled = {client for client, rests in self._known_since.items() if rests < self._rests}
            seen = written(Seen(self._fixes, clients, self._requests, sampled))
        return seen_in(seen)  # without the lock, for requests wait for it

    def meet(self, registry: Registry, *, now: bool = False) -> None:
        """Share what was seen with the other workers, if it is time for that, and learn what they have told clients."""
        with self._lock:
            self._count_repeated()
        self._shared.meet(registry, self.seen, self.learn, now=now)

    def others(self, registry: Registry) -> list[Seen]:
        """What other workers have shared."""
        return self._shared.others(registry)

    def learn(self, others: Iterable[Seen]) -> None:
        """What other workers have told clients, so that it is known here when it comes back.

        Where there is no room, it takes the place of what was used longest ago, if that was earlier. It does so once: what was not told again
        since the latest meeting has gone for good reason.
        """
        told: dict[tuple[str, str], tuple[float, Lesson]] = {}
        for one in others:
            for client, lessons in one.clients.items():
                for like, lesson in lessons.items():
                    at = told_at(lesson)
                    if (client, like) not in told or told[client, like][0] < at:
                        told[client, like] = at, lesson
        with self._lock:
            self._count_repeated()
            known, heard = self._lessons, self._heard
            new = [
                place for place, (at, _) in told.items() if place not in known and at > heard.get(place, -1.0)
            ]
            new.sort(key=lambda place: told[place][0], reverse=True)
            room = _MOST_LESSONS - len(known)
            taken = new[:room] + [
                place
                for place, oldest in zip(new[room:], islice(known, _MOST_LESSONS), strict=False)
                if told[place][0] > self._used_at[oldest]
            ]
            for client, like in reversed(taken):
                lesson = told[client, like][1]
                bare = msgspec.structs.replace(lesson, cells={}, earlier={**lesson.earlier})
                self._keep(client, like, bare, told[client, like][0])
            if taken:
                by_use = sorted(known.items(), key=lambda one: self._used_at[one[0]])
                self._lessons = OrderedDict(by_use)
            self._heard = {place: at for place, (at, _) in told.items()}

    def scores(self, others: Iterable[Seen] = ()) -> list[ClientScore]:
        """What all clients come to, with what other workers have seen."""
        whole = added_up([self.seen(), *others])
        scores = [
            score_of(client, whole.clients.get(client, {}), came, is_sampled=client in whole.sampled)
            for client, came in whole.requests.items()
        ]
        return sorted(scores, key=lambda one: (-one.in_all.passed - one.in_all.refused, one.client))

    def fixes(self, others: Iterable[Seen] = ()) -> dict[str, dict[str, Given]]:
        """What the fixes of each policy are like, by type, with what other workers have seen."""
        with self._lock:
            return added_up([Seen(self._fixes), *(Seen(one.fixes) for one in others)]).fixes

    def _name_of(self, headers: Mapping[str, str]) -> str:
        if self._scoring.client is not None:
            name = str(self._scoring.client(headers))
            return name.encode(errors="backslashreplace").decode()[:200]  # half a surrogate cannot be written
        for name in _CREDENTIALS:
            if credentials := headers.get(name):
                hashed = hash((name, credentials))
                known = self._names.get(hashed)
                if known is None:
                    known = self._digests.name(f"{name}: {credentials}")
                    if len(self._names) >= _MOST_NAMES:
                        self._names = {}
                    self._names[hashed] = known
                return known
        return ANONYMOUS

    def _look_at(self, state: State) -> None:
        """Note which tables have moved since a state was looked at last."""
        if self._log_id not in ("", state.log_id):
            self._begin(state.log_id)
        self._log_id = state.log_id
        if state.number > self._looked_at:
            for entry in _since(state, self._looked_at):
                self._moved |= dict.fromkeys(entry.change.tables, (entry.number, entry.at))
            self._looked_at = state.number
        if self._rests != self._rests_then:
            self._rests_then, self._unsure_up_to = self._rests, state.number

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
        shape, replaced = shape_of(policy.id, fix)
        like = self._digests.like(self._digests.begun(operation, shape), shape, fields)
        place = client, like
        lesson = self._lessons.get(place)
        if lesson is None:
            lesson = Lesson(operation, *shape, tuple(sorted(fix.cells)))
            self._keep(client, like, lesson, now)
        self._use(place, now)
        grounds = frozenset(
            grounds_of(policy.id, fix.cells, fix.rules or ())
        )  # what it rested on before says whether that has changed since
        self._grounds.setdefault(place, (grounds, 0, 0))
        cell = self._cell(place, lesson, state)
        self._grounds[place] = grounds, *self._grounds[place][1:]
        carried = self._digests.carried(fields, shape.sets, partial(told_in, lesson))
        told = self._digests.carried(fix.parameters, shape.sets)
        if replaced:
            name = self._digests.way(fields, replaced, shape, carried)
            name = self._note_way(place, cell, name, told, grounds, state)
            cell.refused[name] = cell.refused.get(name, 0) + 1
            _note_early(cell, way_of(name), told, now)
        else:
            cell.told = told
            name = _add(cell.refused, carried, lesson)
            _note_early(cell, "", told, now)
        cell.last_refused_at[name] = now
        lesson.adds = lesson.adds or any(
            value_at(fields, path) is None and value is not None for path, value in leaves_of(fix.parameters)
        )

    def _note_way(
        self,
        place: tuple[str, str],
        cell: Cell,
        name: str,
        told: str,
        grounds: frozenset[Ground],
        state: State,
    ) -> str:
        """A fix was told that goes by what it replaces. It is said by which name that is counted."""
        known, lesson = self._ways.setdefault(place, {}), self._lessons[place]
        if name not in known and len(known) >= _MOST_VALUES:
            used = {one for each in lesson.cells.values() for one in each.ways}
            for unused in known.keys() - used:
                del known[unused]
            if len(known) >= _MOST_VALUES:
                others = cell.ways.setdefault(OTHERS, Way(told))
                if others.told != told:
                    others.told, lesson.is_in_part = "", True
                return OTHERS
        rested_on, grounds_at, seen = known.get(name, (grounds, 0, 0))
        if moved := _last_move(rested_on, seen, state):
            grounds_at = moved.number
        known[name] = grounds, grounds_at, max(seen, state.number)
        cell.ways[name] = Way(told, grounds_at)
        return name

    def _note_passed(
        self,
        headers: Callable[[], Mapping[str, str]],
        operation: str,
        fields: Mapping[str, Any],
        state: State,
        pin: Pin | None,
    ) -> None:
        """A request was let through. It counts if the client was given a fix for one like it, once however often it is checked."""
        # Nobody knows how long it takes to tell who is asking.
        if not self.counted or ((self.reads is None or self._is_resting) and self._room_at() is None):
            return
        client = self._name_of(headers())
        counted = self.counted.get((client, operation))
        if counted is None:
            return
        plain, inside = counted
        sent_parts = [*map(fields.get, plain)]
        if inside:
            whole = fields._fields if isinstance(fields, Request) else fields
            sent_parts += [value_at(whole, path) for path in inside]
        sent = client, operation, hash(_encode(sent_parts))
        if pin is not None:
            if pin.counted is None:
                pin.counted = set()
            elif sent in pin.counted:
                return
            pin.counted.add(sent)
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
                whole = fields._fields if isinstance(fields, Request) else fields
                like = self._like_ones(client, operation, whole, state)
                self._repeated[sent] = _Repeated(client, like, self._noted_at)

    def _like_ones(
        self, client: str, operation: str, fields: Mapping[str, Any], state: State
    ) -> list[tuple[tuple[str, str], Cell, str]]:
        """Where it is counted that a request was let through: the lessons for requests like it, each with what it has carried."""
        found = []
        for shape, begun in self._shapes.get(client, {}).get(operation, {}).items():
            place = client, self._digests.like(begun, shape, fields)
            lesson = self._lessons.get(place)
            if lesson is not None:
                carried = self._digests.carried(fields, shape.sets, partial(told_in, lesson))
                found.append((place, self._cell(place, lesson, state), carried))
        return found

    def _count_repeated(self) -> None:
        """Count what was let through since this was done last. No lesson may change before: these are counted for what they were then."""
        repeated, self._repeated = self._repeated, {}
        for one in repeated.values():
            for place, cell, carried in one.like:
                name = _add(cell.passed, carried, self._lessons[place], one.count)
                cell.first_passed_at.setdefault(name, one.first_at)
                self._use(place, self._noted_at)
            if one.like:
                self._note_request(one.client, passed=one.count)
                self._shared.is_changed = True

    def _note_request(self, client: str, *, passed: int = 0, refused: int = 0) -> None:
        """Count a request, once for however many fixes it is."""
        so_far = self._requests.pop(client, Requests())
        self._requests[client] = Requests(so_far.passed + passed, so_far.refused + refused)
        self._known_since.setdefault(client, self._rests)
        if len(self._requests) > _MOST_CLIENTS:
            gone, _ = self._requests.popitem(last=False)
            del self._known_since[gone]

    def _use(self, place: tuple[str, str], at: float) -> None:
        self._lessons.move_to_end(place)
        self._used_at[place] = at

    def _keep(self, client: str, like: str, lesson: Lesson, used_at: float) -> None:
        self._lessons[client, like] = lesson
        self._used_at[client, like] = used_at
        shapes = self._shapes.setdefault(client, {}).setdefault(lesson.operation, {})
        if len(shapes) < _MOST_SHAPES:
            shape = Shape(lesson.policy, lesson.type, lesson.reads, lesson.sets)
            shapes[shape] = self._digests.begun(lesson.operation, shape)
            counted = self.counted.setdefault((client, lesson.operation), ({}, {}))
            for path in (*lesson.reads, *lesson.sets):
                is_inside = "/" in path or "~" in path
                # Interned, as the names of a model's fields are: what is seen of a request at first is found by that.
                counted[is_inside][intern(path)] = None
        if len(self._lessons) > _MOST_LESSONS:
            (gone, of), _ = self._lessons.popitem(last=False)
            del self._used_at[gone, of]
            self._grounds.pop((gone, of), None)
            self._ways.pop((gone, of), None)
            if not any(one == gone for one, _ in self._lessons):
                for at in self._shapes.pop(gone):
                    self.counted.pop((gone, at), None)

    def _cell(self, place: tuple[str, str], lesson: Lesson, state: State) -> Cell:
        """Where what happens to a lesson now is counted."""
        at, changed_at = max((self._moved.get(table, (0, 0.0)) for table in lesson.tables), default=(0, 0.0))
        grounds_at: int | None = None
        if place in self._grounds:
            grounds, grounds_at, seen = self._grounds[place]
            if moved := _last_move(grounds, seen, state):
                grounds_at, changed_at = moved.number, moved.at
            self._grounds[place] = grounds, grounds_at, max(seen, state.number)
            at = max(at, grounds_at)
        if at not in lesson.cells:
            lesson.cells[at] = Cell(grounds_at, changed_at, is_cut=0 < at <= self._unsure_up_to)
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


def _add(counts: dict[str, int], value: str, lesson: Lesson, by: int = 1) -> str:
    """Count a value, by itself if there is room for it or it was told. It is said by which name."""
    has_room = value in counts or len(counts) < _MOST_VALUES or value in told_in(lesson)
    name = value if has_room else OTHERS
    counts[name] = counts.get(name, 0) + by
    return name


def _note_early(cell: Cell, way: str, told: str, now: float) -> None:
    """Note a refusal if nothing has come yet of what was told for it."""
    if not any(covers(one, told) for one in cell.passed):
        early = cell.early.setdefault(way, Early())
        if len(early.at) < _MOST_EARLY:
            early.at.append(now)
        else:
            early.more += 1


def _since(state: State, number: int) -> list[Entry]:
    """The entries of the log after a number, as far as the state knows them."""
    behind = state.number - number
    return [one for one in state.tail[-behind:] if one.number > number] if behind > 0 else []


def _last_move(grounds: frozenset[Ground], number: int, state: State) -> Entry | None:
    """The last entry after a number that has moved any of these."""
    later = reversed(_since(state, number))
    return next((one for one in later if any(has_moved(ground, one.change) for ground in grounds)), None)


def _columns_of(cells: Cells) -> dict[str, tuple[str, ...] | None]:
    columns: dict[str, tuple[str, ...] | None] = {}
    for table, rows in cells.items():
        read = [] if rows is None else [*rows.values()]
        is_whole = rows is None or None in read
        columns[table] = None if is_whole else tuple(sorted({one for some in read for one in some or ()}))
    return columns
