"""What stores on another machine share: one round trip for all that is looked at in one moment, and a circuit for a store that does not answer.

What was looked at is kept with the revision that it is of. Every moment begins with a round trip that tells whether the root is still at
that revision. A near cache spares it as long as a channel of the engine tells of every write.
"""

import threading
import time
from abc import abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.circuit import Circuit
from shelflife.client.diary import Diary, Noted
from shelflife.client.entries import Entry, Root, Shape, is_below, root_at, roots_in
from shelflife.client.finding import Found
from shelflife.client.moments import Remote
from shelflife.client.near import Channel, News
from shelflife.client.remote_diary import RemoteDiary
from shelflife.client.seen import InMoment, Look, Moment, Seen, Told, Wanted, knowledge_in, places_of
from shelflife.client.stores import Known, StoreError, Write, Written, revision_after
from shelflife.clocks import unsleeping_s
from shelflife.contract.values import is_carried
from shelflife.forks import Forked, mind_forks

__all__ = ["LONGEST_VERB_S", "RemoteStore"]

LONGEST_VERB_S = 1.0
"""So long at most an agent waits for one verb, all that it takes together. When it has, the circuit opens. Where a PostgreSQL has to be
connected to first, that may take two seconds more, or what its address says."""

_LONGEST_PUT_S = 0.002
"""A write that makes thousands of entries suspect is waited for so much longer for each."""

_LONGEST_LIST_S = 10.0
"""So long for all that bears a tag, which may be thousands."""

_LONG_S = 0.5
"""What takes longer to fail is not tried by every step."""

_MOST_ROOTS = 1024
_MOST_PLACES = 20_000
"""Of one root: more are not kept at once."""

_MOST_LOOKS = 64
_MOST_NOTED = 256

_FAILURES = (
    msgspec.MsgspecError,
    OSError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Of any engine, where somebody has edited what is there, or a text is not Unicode."""

Outcome = TypeVar("Outcome")


class RemoteStore(Remote, Forked):
    """A store in an engine that many machines share. What an engine does is in its subclasses.

    `namespace` keeps those who share an engine apart: what is learned in one is never seen in another. With `near`, what was
    looked at is kept and used without a round trip, as long as the engine's channel tells of every write; it is behind by
    `lag_s` at most, and where that would be more than a second, or the channel is broken, the store is asked.
    """

    failures: tuple[type[Exception], ...]
    """What the driver of the engine raises."""

    def __init__(self, where: str, *, namespace: str, near: bool) -> None:
        if not (
            0 < len(namespace) <= 64 and namespace.isascii() and namespace.replace("-", "_").isidentifier()
        ):
            raise ValueError("a namespace is a word of letters, digits, _ and -, of at most 64 characters")
        self.where = where
        self.namespace = namespace
        self._all_failures: tuple[type[Exception], ...] = (*self.failures, *_FAILURES)
        self._moment = Moment()
        self._circuit = Circuit()
        self._locked: dict[Root, Circuit] = {}
        self._kept: OrderedDict[Root, Seen] = OrderedDict()
        self._noted: dict[Root, dict[str, None]] = {}
        self._highest: dict[Root, int] = {}
        """The highest revision of each root that was seen. It crosses a fork: the child has seen what its parent saw."""
        self.set_backs = Counter()
        self.diary: Diary | None = RemoteDiary(
            self._called_beside, self._add_to_diary, self._diary, lambda: self._is_in_use
        )
        """What all who use it have done with it."""
        self._is_in_use = False
        """Whether something was done with it since it was let go of."""
        self._lock = threading.Lock()
        self._channel = (
            Channel(self._listening, self._hear, (*self._all_failures, StoreError)) if near else None
        )
        mind_forks(self)

    def after_fork_in_child(self) -> None:
        """What was kept may have been in the middle of a change, and nobody listens here yet."""
        self._lock = threading.Lock()
        self._moment = Moment()
        self._kept, self._noted = OrderedDict(), {}

    @property
    def lag_s(self) -> float | None:
        """How far the near cache may be behind just now, in seconds; None where it is not used."""
        return None if self._channel is None else self._channel.lag_s

    def close(self) -> None:
        """Let go of all connections, until the next verb."""
        if self._channel is not None:
            self._channel.close()
        with self._lock:
            self._kept.clear()
            noted, self._noted = self._noted, {}
        for root, ids in noted.items():
            with suppress(StoreError):
                self._called("written", partial(self._note, root, tuple(ids)))
        self._is_in_use = False
        self._disconnect()

    def wanted(self, root: Root, operation: str, request: Fields, tags: tuple[str, ...]) -> Wanted:
        with suppress(ValueError):  # of an address that is none, of which nothing is looked at
            root = root_at(root)
        return Wanted(root, operation, places_of(operation, request), tags)

    def moment(self, wanted: Wanted | None = None) -> InMoment:
        return InMoment(self._moment, wanted)

    def known(self, root: Root) -> Known:
        return self._looked(root).known

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        """What is on record of a root, and what holds for a request: near, and asked for before, by one look into a dictionary."""
        moment = self._moment
        seen = moment.seen.get(root) if moment.depth else None
        if seen is None and self._channel is not None:
            seen = self._kept.get(root)
            if seen is not None and not self._is_near(seen):
                seen = None
        if seen is not None:
            found = seen.find(operation, request)
            if found is not None:
                if moment.depth:
                    moment.seen[root] = seen
                return seen.known, found
        if not is_carried(operation, request):
            return self.known(root), []
        places_by, places = places_of(operation, request), list[str]()
        with self.moment(None if moment.depth else Wanted(root, operation, places_by)):
            for _ in range(_MOST_LOOKS):
                seen = self._looked(root, operation, places)
                shapes = seen.shapes[operation]
                places = places_by(root, shapes)
                if seen.has(operation, places, ()):
                    at = dict(zip(shapes, places, strict=True))
                    return seen.known, seen.find_at(at, operation, request)
        raise self._overrun()

    def note(self, found: Found) -> None:
        self.used(found.entry.root, (found.entry.id,))

    def guessed(self, root: Root) -> Known | None:
        """What was known of a root when it was last looked at, without asking: others may have written since. None where it was not.

        Whoever decides by it has that settled by a write, which names the revision, or else by `is_still`.
        """
        seen = self._moment.seen.get(root) or self._kept.get(root)
        return None if seen is None else seen.known

    def is_still(self, root: Root, revision: int, tags: Sequence[str] = ()) -> bool:
        return self._looked(root, tags=tags).revision == revision

    def shapes(self, root: Root, operation: str) -> Iterable[Shape]:
        return self._looked(root, operation).shapes[operation]

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        seen = self._looked(root, places=places)
        found = [entry for place in places for entry in seen.places[place]]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def count(self, root: Root, *tags: str) -> int:
        counts = self._looked(root, tags=tags).counts
        return sum([counts[tag] for tag in tags])

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        return self._called("read", lambda: self._tagged(root, tags), _LONGEST_LIST_S)

    def roots(self) -> list[Root]:
        return self._called("read", lambda: roots_in(self._known_roots()))

    def entries(self) -> Iterator[Entry]:
        found = self._called("read", lambda: list(self._entries()))
        return iter(sorted(found, key=lambda entry: (entry.learned_at, entry.id)))

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        drop_ids = tuple(dict.fromkeys(write.drop_ids))
        write = msgspec.structs.replace(write, drop=tuple(write.drop), drop_ids=drop_ids)
        new_revision = revision_after(revision)
        seen = self._moment.seen.pop(root, None)
        with self._lock:
            kept = self._kept.pop(root, None)
            noted = tuple(self._noted.pop(root, ())) if write.put else ()
        life, wanted = self._life, self._moment.wanted
        before = next((one for one in (seen, kept) if one is not None and one.revision == revision), Seen())
        counted = write.counted if wanted is None else [*dict.fromkeys((*write.counted, *wanted.tags))]
        revisions = revision, new_revision
        # Unless it is known to have been carried out, nothing that was seen counts: a connection may end before the answer is here.
        writing = partial(self._written, root, revisions, write, noted, counted)
        told = None
        try:
            told = self._waited_for(root, writing, LONGEST_VERB_S + _LONGEST_PUT_S * len(write.put))
        finally:
            if told is None:
                self._note_again(root, noted)
        if told is None:
            return None
        written, counts = told
        put, left = [filed.entry for filed in write.put], [entry for entry, _ in written.dropped]
        left += written.trimmed
        operations = {one.operation for one in left}
        now = before.after(new_revision, write.knowledge, operations, (one.place for one in (*put, *left)))
        if put:
            now.add_shapes(put)
        now.counts.update(zip(counted, counts, strict=True))
        now.life, now.looked_at = life, unsleeping_s()
        self._keep(root, now)
        return written

    def _waited_for(self, root: Root, writing: Callable[[], Outcome], longest_s: float) -> Outcome:
        """A root is written. One that others keep locked is not waited for again at once, and holds up no other."""
        circuit = self._locked.get(root)
        let_in_at = time.monotonic() if circuit is None else circuit.check()
        try:
            outcome = self._called("written", writing, longest_s)
        except StoreError as error:
            if not error.is_away and time.monotonic() - let_in_at > _LONG_S:
                self._locked.setdefault(root, Circuit()).open(let_in_at, error)
            raise
        self._locked.pop(root, None)
        return outcome

    def clear(self) -> None:
        """Remove the namespace, and all that is in it. For agents that use it, that is a store that has lost what was written."""
        self._circuit.close()  # it is not for an agent that waits
        self._called("written", self._clear)
        with self._lock:
            self._kept.clear()
            self._highest.clear()
            self._noted.clear()

    def used(self, root: Root, ids: Iterable[str]) -> None:
        with self._lock:
            noted = self._noted.setdefault(root, {})
            for id in ids:
                noted[id] = noted.pop(id, None)
            if len(noted) < _MOST_NOTED:
                return
            del self._noted[root]
        with suppress(StoreError):
            self._called("written", lambda: self._note(root, tuple(noted)))

    def _note_again(self, root: Root, ids: Sequence[str]) -> None:
        """These were used before those that were noted meanwhile."""
        if ids:
            with self._lock:
                later = self._noted.get(root, {})
                self._noted[root] = {id: None for id in ids if id not in later} | later

    def _looked(
        self,
        root: Root,
        operation: str | None = None,
        places: Sequence[str] = (),
        tags: Sequence[str] = (),
    ) -> Seen:
        """What is seen of a root, with all that is asked for in it. It costs one round trip in a moment, if the moment said what it wants."""
        moment, wanted = self._moment, self._moment.wanted
        seen = moment.seen.get(root) if moment.depth else None
        is_fresh = seen is not None
        if seen is None:
            seen = self._kept.get(root) or Seen()
            is_fresh = self._is_near(seen)
        if is_fresh and seen.has(operation, places, tags):
            if moment.depth:
                moment.seen[root] = seen
            return seen
        if wanted is not None and is_below(root, wanted.root):
            operation, tags = operation or wanted.operation, (*tags, *wanted.tags)
        else:
            wanted = None
        for _ in range(_MOST_LOOKS):
            all_places = [*places]
            if wanted is not None and operation == wanted.operation:
                all_places += wanted.places_by(root, seen.shapes.get(operation, ()))
            lacks_shapes = operation is not None and operation not in seen.shapes
            missing = tuple(place for place in all_places if place not in seen.places)
            uncounted = tuple(tag for tag in dict.fromkeys(tags) if tag not in seen.counts)
            if is_fresh and not (lacks_shapes or missing or uncounted):
                break
            held = tuple(place for place in all_places if place in seen.places)
            asked = tags if not is_fresh else uncounted
            look = Look(root, seen.revision, operation, lacks_shapes, missing, held, tuple(asked))
            # Before the look: others may have seen a later revision by the time that it is answered.
            highest, life, looked_at = self._highest.get(root, 0), self._life, unsleeping_s()
            looking = partial(self._seen_by, look, seen)
            seen, is_fresh = self._called("read", looking), True
            if seen.revision < highest:
                self._highest[root] = seen.revision
                self.set_backs[root] += 1
            seen.life, seen.looked_at = life, looked_at
        else:
            raise self._overrun()
        self._keep(root, seen)
        return seen

    def _overrun(self) -> StoreError:
        return StoreError(f"others are writing to the memory {self.where} all the time")

    @property
    def _life(self) -> object | None:
        return None if self._channel is None else self._channel.life

    def _is_near(self, seen: Seen) -> bool:
        """Whether what is kept can be used without asking."""
        return self._channel is not None and self._channel.covers(seen.life, seen.looked_at)

    def _seen_by(self, look: Look, before: Seen) -> Seen:
        return before.with_told(look, self._look(look))

    def _keep(self, root: Root, seen: Seen) -> None:
        """Keep what was seen, for this moment and for later ones.

        Two race here: this thread, with what it looked at, and the one that listens, with a write that came after that. Revisions rise, so
        that what is older than the newest that was heard of is not kept. Nor is what was looked at before the channel was there.
        """
        if self._moment.depth:
            self._moment.seen[root] = seen
        channel = self._channel
        with self._lock:
            self._highest[root] = max(self._highest.get(root, 0), seen.revision)
            is_outrun = channel is not None and (
                channel.life is not seen.life or channel.newest.get(root, 0) > seen.revision
            )
            if is_outrun or len(seen.places) > _MOST_PLACES:
                self._kept.pop(root, None)
                return
            self._kept[root] = seen
            self._kept.move_to_end(root)
            if len(self._kept) > _MOST_ROOTS:
                self._kept.popitem(last=False)

    def _hear(self, news: News | None) -> None:
        """What the channel tells: a write, or that it cannot be known what was written."""
        with self._lock:
            if news is None:
                self._kept.clear()
                return
            if news.root in self._highest:  # it may be gone by without another look
                self._highest[news.root] = max(self._highest[news.root], news.revision)
            seen = self._kept.get(news.root)
            if seen is None or seen.revision == news.revision:
                return
            # One that is lower may be late, or the engine has begun anew: either way it is asked.
            if news.knowledge is None or seen.revision != news.before:
                del self._kept[news.root]
                return
            knowledge = knowledge_in(news.knowledge)
            self._kept[news.root] = seen.after(news.revision, knowledge, news.operations, news.places)

    def _called(self, done: str, verb: Callable[[], Outcome], longest_s: float = LONGEST_VERB_S) -> Outcome:
        """Have the engine do something. Whatever it cannot do is a `StoreError`; that it does not answer opens the circuit."""
        let_in_at = self._circuit.check()
        try:
            outcome = self._tried(done, verb, let_in_at + longest_s)
        except StoreError as error:
            if error.is_away:
                self._circuit.open(let_in_at, error)
            elif not error.is_untried:
                # The engine is there: what is wrong with one root is not for others to wait for.
                self._circuit.close()
            raise
        self._circuit.close()
        return outcome

    def _called_beside(self, done: str, verb: Callable[[], Outcome]) -> Outcome:
        """The same for what no recall needs: what becomes of it says nothing of the memory, and nobody waits where that does not answer."""
        return self._tried(done, verb, self._circuit.check(tries=False) + LONGEST_VERB_S)

    def _tried(self, done: str, verb: Callable[[], Outcome], until: float) -> Outcome:
        self._moment.until = until
        self._is_in_use = True
        try:
            return verb()
        except self._all_failures as error:
            failure = StoreError(f"the memory {self.where} cannot be {done}: {_in_one_line(error)}")
            failure.is_away = self._is_away(error)
            raise failure from error

    def _is_away(self, error: Exception) -> bool:
        """Whether an error shows that the engine does not answer."""
        return isinstance(error, (*self.failures, OSError))

    @abstractmethod
    def _add_to_diary(self, noted: Sequence[Noted]) -> None:
        """Add these counts to those that are there."""

    @abstractmethod
    def _diary(self, since: int) -> list[Noted]:
        """The counts that are there, from this hour on."""

    @abstractmethod
    def _look(self, look: Look) -> Told:
        """What there is, in one round trip."""

    @abstractmethod
    def _written(
        self,
        root: Root,
        revisions: tuple[int, int],
        write: Write,
        used: Sequence[str],
        counted: Sequence[str],
    ) -> tuple[Written, Sequence[int]] | None:
        """Carry out what is written, from one revision to another, and note first that these entries were used.

        Tells also how many bear each of these tags then; None when the root is not at the revision any more.
        """

    @abstractmethod
    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]: ...

    @abstractmethod
    def _known_roots(self) -> list[Root]: ...

    @abstractmethod
    def _entries(self) -> Iterator[Entry]: ...

    @abstractmethod
    def _note(self, root: Root, used: Sequence[str]) -> None: ...

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _listening(self) -> Any:
        """A way to hear of writes; see `Channel`."""

    @abstractmethod
    def _disconnect(self) -> None: ...


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
