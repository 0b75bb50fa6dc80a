"""What was seen of clients: the fixes that they were given, and how often which requests came of them. The counts of workers add up.

A request is like another when it has the same values in the places that a policy has read and its fix does not touch. Of like requests it
is counted which were refused and which were let through, each by a digest of what came in the places that the fix sets.

There are thousands of these at a time, and none holds itself: the search for garbage need not look at them (`gc=False`).
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shelflife.server.likeness import covers, taken_for

__all__ = [
    "OTHERS",
    "Cell",
    "Early",
    "Given",
    "Lesson",
    "Requests",
    "Seen",
    "Way",
    "added_up",
    "end_oldest",
    "seen_in",
    "told_at",
    "told_in",
    "written",
]

_MOST_EARLIER = 16

OTHERS = "others"
"""Stands for all values that there is no room for. Whatever was refused counts as refused, and not as let through besides."""


class Way(msgspec.Struct, omit_defaults=True, gc=False):
    """What was told for one value, where the fix goes by what it replaces: each name has a new one of its own."""

    told: str = ""
    """The digest of what the fix sets; empty for values that have no room, and were not all told the same."""

    grounds_at: int | None = None
    """The place in the log of the last change of what this one rests on."""


class Early(msgspec.Struct, omit_defaults=True, gc=False):
    """Refusals for the same that came before what was told has come: they may have been under way together."""

    at: list[float] = []
    """When the first of them were; whatever else a worker has not seen may have come between two of these."""

    more: int = 0
    """How many there were after these."""


class Cell(msgspec.Struct, omit_defaults=True, gc=False):
    """What came of like requests while no table has moved that their fix rests on."""

    grounds_at: int | None = None
    """The place in the log of the last change of what the fix rests on; None where this worker does not know what that is."""

    changed_at: float = 0.0
    """When the change was that it began with; 0 where that is not known."""

    told: str = ""
    """The digest of what the fix sets, whatever that replaces; empty where this worker has not given such a one."""

    passed: dict[str, int] = {}
    """How many requests were let through, by the digest of what they had in the places that the fix sets."""

    first_passed_at: dict[str, float] = {}
    refused: dict[str, int] = {}
    early: dict[str, Early] = {}
    """By the fix that was told, as `way_of` has it; empty for one that is told whatever it replaces."""

    ways: dict[str, Way] = {}
    """Those of `refused` that were told a fix which goes by what it replaces."""

    last_refused_at: dict[str, float] = {}
    is_cut: bool = False
    """Whether requests may have been left out between the change that it began with and the first that was seen."""


class Lesson(msgspec.Struct, omit_defaults=True, gc=False):
    """A fix that a client was given for like requests, whatever its values are at the moment."""

    operation: str
    policy: str
    type: str
    reads: tuple[str, ...]
    """The places by which requests are like each other."""

    sets: tuple[str, ...]
    tables: tuple[str, ...]
    adds: bool = False
    """Whether a request was refused that lacked what the fix sets."""

    is_in_part: bool = False
    """Whether values had no room that were told something else each, so that nothing is known of these."""

    cells: dict[int, Cell] = {}
    """By the place in the log of the last change of any of the tables."""

    earlier: dict[str, int] = {}
    """What the fix has set before these: by digest, the last place in the log at which it was right or came all the same."""


class Given(msgspec.Struct, omit_defaults=True):
    """The fixes of one type that a policy has given."""

    sets: tuple[str, ...] = ()
    rests_on: dict[str, tuple[str, ...] | None] = {}
    """By table, the columns that were read for the latest of them; None for all."""


class Requests(msgspec.Struct, frozen=True):
    """How many requests of a client came to what. Both are sums, so they do not go back while the client is counted."""

    passed: int = 0
    """Requests that were let through, and are like one that it was given a fix for."""

    refused: int = 0
    """Requests that were refused with a fix that can be kept."""


class Seen(msgspec.Struct, omit_defaults=True):
    """All that a worker has seen."""

    fixes: dict[str, dict[str, Given]] = {}
    """By policy and type."""

    clients: dict[str, dict[str, Lesson]] = {}
    """By the name of the client and a digest that is the same for like requests."""

    requests: dict[str, Requests] = {}
    """By the name of the client, since the worker began."""

    sampled: set[str] = set()
    """Clients some of whose requests may have been left out, because there were too many at a time."""


written = msgspec.msgpack.Encoder().encode
"""To write a thing and read it again is the fastest way to copy it; and only the first needs it to stay as it is meanwhile."""
seen_in = msgspec.msgpack.Decoder(Seen).decode
_lesson_in = msgspec.msgpack.Decoder(Lesson).decode


def added_up(seen: Iterable[Seen]) -> Seen:
    """What all workers have seen together."""
    whole = Seen()
    for one in seen:
        for policy, by_type in one.fixes.items():
            _add_fixes(whole.fixes.setdefault(policy, {}), by_type)
        for client, lessons in one.clients.items():
            known = whole.clients.setdefault(client, {})
            for id, lesson in lessons.items():
                if id in known:
                    _add_lesson(known[id], lesson)
                else:
                    known[id] = _lesson_in(written(lesson))  # a copy to add to
        for client, came in one.requests.items():
            so_far = whole.requests.get(client, Requests())
            whole.requests[client] = Requests(so_far.passed + came.passed, so_far.refused + came.refused)
        whole.sampled |= one.sampled
    return whole


def told_in(lesson: Lesson) -> Iterator[str]:
    """All that was told, the latest first."""
    for at in sorted(lesson.cells, reverse=True):
        cell = lesson.cells[at]
        yield cell.told
        yield from (way.told for way in cell.ways.values())
    yield from lesson.earlier


def told_at(lesson: Lesson) -> float:
    """When it was told last; 0 where this worker has not."""
    return max((at for cell in lesson.cells.values() for at in cell.last_refused_at.values()), default=0.0)


def end_oldest(lesson: Lesson) -> None:
    """Keep of the oldest cell what was right then, for as long as that still comes: the only sign that a client does not forget."""
    at = min(lesson.cells)
    oldest = lesson.cells.pop(at)
    following = lesson.cells[min(lesson.cells)]
    if oldest.grounds_at is not None and oldest.grounds_at == following.grounds_at:
        following.told = following.told or oldest.told  # it is right still
    else:
        lesson.earlier[oldest.told] = at
    cells = lesson.cells.values()
    passed = {one for cell in cells for one in cell.passed}
    refused = {taken_for(one) for cell in cells for one in cell.refused}
    for name, way in oldest.ways.items():
        later = [cell.ways[name].told for cell in cells if name in cell.ways]
        if not later and any(covers(one, way.told) for one in passed):
            following.ways[name] = way  # it is right still
        elif way.told not in later and (later or any(covers(one, way.told) for one in refused)):
            lesson.earlier[way.told] = at
    came = {taken_for(one) for one in oldest.refused}
    lesson.earlier |= {told: at for told in lesson.earlier if any(covers(one, told) for one in came)}
    while len(lesson.earlier) > _MOST_EARLIER:
        del lesson.earlier[min(lesson.earlier, key=lesson.earlier.__getitem__)]


def _add_fixes(whole: dict[str, Given], one: Mapping[str, Given]) -> None:
    for type, given in one.items():
        of_type = whole.setdefault(type, Given(given.sets))
        of_type.rests_on = {**of_type.rests_on, **given.rests_on}


def _add_lesson(whole: Lesson, one: Lesson) -> None:
    whole.adds, whole.is_in_part = whole.adds or one.adds, whole.is_in_part or one.is_in_part
    for value, place in one.earlier.items():
        whole.earlier[value] = max(place, whole.earlier.get(value, 0))
    for number, cell in one.cells.items():
        into = whole.cells.setdefault(number, Cell())
        into.told = into.told or cell.told
        known = [one for one in (into.grounds_at, cell.grounds_at) if one is not None]
        into.grounds_at = max(known, default=None)
        into.changed_at = max(into.changed_at, cell.changed_at)
        into.is_cut = into.is_cut or cell.is_cut
        for name, way in cell.ways.items():
            into.ways[name] = _added_way(into.ways[name], way) if name in into.ways else way
            whole.is_in_part = whole.is_in_part or not into.ways[name].told
        for counts, more in ((into.passed, cell.passed), (into.refused, cell.refused)):
            for value, count in more.items():
                counts[value] = counts.get(value, 0) + count
        for value, at in cell.last_refused_at.items():
            into.last_refused_at[value] = max(at, into.last_refused_at.get(value, 0.0))
        for value, at in cell.first_passed_at.items():
            into.first_passed_at[value] = min(at, into.first_passed_at.get(value, at))
        for way_told, early in cell.early.items():
            so_far = into.early.get(way_told, Early())
            into.early[way_told] = Early(so_far.at + early.at, so_far.more + early.more)


def _added_way(one: Way, other: Way) -> Way:
    if one.told != other.told:
        return Way() if None in (one.grounds_at, other.grounds_at) else max(one, other, key=_is_of)
    return Way(one.told, other.grounds_at if one.grounds_at is None else one.grounds_at)


def _is_of(way: Way) -> tuple[int, str]:
    return way.grounds_at or 0, way.told
