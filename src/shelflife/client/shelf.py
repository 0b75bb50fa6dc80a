"""What one memory finds in its store, and whether it may be used now."""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from shelflife.client.asking import Fields, Reply
from shelflife.client.entries import Entry, Knowledge, Root, is_below, origin_of
from shelflife.client.finding import ByVerbs, Finder, Found
from shelflife.client.moments import InMoments, Remote
from shelflife.client.positions import Place
from shelflife.client.steps import Word, Words
from shelflife.client.stores import Known, LosesWrites, Store, StoreError, Write, Written
from shelflife.client.strategies import RULES, SUSPECT, Strategy, table_tag
from shelflife.client.telling import Telling
from shelflife.forks import Locking

if TYPE_CHECKING:
    from shelflife.client.seen import Wanted

__all__ = ["Dealing", "Doubts", "Revalidate", "Shelf", "Standing", "Usable", "Withheld", "standing_of"]

Step = TypeVar("Step")
Outcome = TypeVar("Outcome")

_ANY_TIME = nullcontext()
_MOST_CONFIRMED = 10_000
_MOST_ROOTS = 256
SPLIT_S = 600.0
"""A log that was left and is back within this time answers beside another; and so long is that believed. Who has noted it may have a clock
that is ahead of this one."""

MOST_TRIES = 64
"""So often at most is something decided anew because others have written."""

_NOTHING_KNOWN = Known(Knowledge(), 0)


class Usable(msgspec.Struct, frozen=True):
    """Nothing is known against it."""


class Revalidate(msgspec.Struct, frozen=True):
    """It is not to be used until the server was asked about it, or has said something that could be dealt with."""

    why: str


class Withheld(msgspec.Struct, frozen=True):
    """It is not to be used, and asking would not help."""

    why: str


Standing = Usable | Revalidate | Withheld


USABLE = Usable()
"""There is one, so that it can be told by what it is."""


class Doubts(Locking):
    """Servers of which a response was seen that could not be dealt with, is being dealt with, or is not to be believed.

    There are two kinds of doubt, and a server is in doubt while there is either:

    - This one is of this process alone, and goes with it. It is raised where nothing can be written, or nothing has been decided yet: the
      store fails, whoever waits for an answer is cancelled, a response cannot be read, or is not to be believed. The next response that is
      dealt with lifts it; if that is of a server with a log, it first becomes a doubt of the other kind.
    - `Place.doubt` is in the store, so that every process that uses the store has it, and later ones too. It is raised by a reply that may
      be newer than the position that is known, and only an answer of the server lifts it.
    """

    def __init__(self) -> None:
        self._unsettled: dict[Root, int] = {}
        self._count = 0
        self._withheld: Counter[Root] = Counter()
        self._told: dict[Root, str] = {}
        super().__init__()

    def after_fork_in_child(self) -> None:
        """Whoever was asking a server is not there any more: what it was about to find out is not known here."""
        super().after_fork_in_child()
        for root in +self._withheld:
            self.add(root)
        self._withheld.clear()

    def __contains__(self, root: Root) -> bool:
        """Whether something was seen that has not been dealt with."""
        return root in self._unsettled

    def standing_of(self, root: Root) -> Standing:
        """How a server stands."""
        if root in self._unsettled:
            return Revalidate("a response of the server could not be dealt with")
        if self._withheld.get(root):
            return Withheld("the server is being asked which entries a change has made stale")
        return USABLE

    def withholding(self, root: Root, *, at_once: bool = True) -> "_Withholding":
        """Withhold all that is remembered of a server, at once or from when it is begun."""
        return _Withholding(self, root, at_once)

    def withhold(self, root: Root) -> None:
        """Withhold it until the one who does this ends it."""
        with self._lock:
            self._withheld[root] += 1

    def settle(self, root: Root, doubt: int) -> None:
        """A response was dealt with before which there was this doubt.

        Two race here: this response, and another that failed meanwhile. The doubt that the second has raised stays.
        """
        with self._lock:
            if self._unsettled.get(root) == doubt:
                self._unsettled.pop(root, None)

    def add(self, root: Root) -> None:
        """A response of the server was seen that has not been dealt with."""
        with self._lock:
            # It never goes back: a doubt that was settled must not look like one that came after it.
            self._count += 1
            self._unsettled[root] = self._count

    def is_news(self, root: Root, why: str) -> bool:
        """Whether a reason not to believe a server is to be told: once, until it is believed again or there is another."""
        with self._lock:
            is_news = self._told.get(root) != why
            self._told[root] = why
            return is_news

    def forget(self, root: Root) -> None:
        """Tell anew what is held against a server."""
        with self._lock:
            self._told.pop(root, None)


class _Withholding:
    """Two race here: whoever finds out what a movement makes stale, and another thread or task that recalls meanwhile. The second gets
    nothing, for it might get what the first is about to drop."""

    __slots__ = ("_at_once", "_doubts", "_is_begun", "_root")

    def __init__(self, doubts: Doubts, root: Root, at_once: bool) -> None:
        self._doubts = doubts
        self._root = root
        self._at_once = at_once
        self._is_begun = False

    def begin(self) -> None:
        """Withhold it from now on."""
        if not self._is_begun:
            self._doubts.withhold(self._root)
            self._is_begun = True

    def __enter__(self) -> "_Withholding":
        if self._at_once:
            self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        # all of it here: Ctrl-C comes where a function begins, and must not leave anything withheld for good
        if self._is_begun:
            with self._doubts._lock:
                self._doubts._withheld[self._root] -= 1


class Dealing(msgspec.Struct, eq=False):
    """The time in which a response of a server is dealt with; tells whether one before it was not.

    Whatever keeps it from being dealt with, also that whoever waits for an answer is cancelled, leaves the server in doubt. Each response
    that says something new has it, and a generator would cost more.
    """

    doubts: Doubts
    root: Root
    doubt: int | None = None

    def __enter__(self) -> bool:
        self.doubt = self.doubts._unsettled.get(self.root)
        return self.doubt is not None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.doubts.add(self.root)
        elif self.doubt is not None:  # else there is nothing that it could settle
            self.doubts.settle(self.root, self.doubt)


def standing_of(entry: Entry, knowledge: Knowledge, server: Standing) -> Standing:
    """Whether an entry may be used, given what is known and how its server stands."""
    if entry.strategy != knowledge.strategy:
        return Withheld("it was kept under another strategy, which may keep what is stale")
    if isinstance(server, Usable):
        if entry.is_suspect:
            return Revalidate("it may have gone stale")
        if entry.generation != knowledge.generation:
            return Revalidate("it is of another log of the server, or of a part of it that is too far back")
    return server


class Shelf:
    """A store as one memory sees it. What the store cannot do is a miss, and told."""

    def __init__(
        self,
        store: Store,
        strategy: Strategy,
        words: Words | None,
        telling: Telling,
        clock: Callable[[], float],
    ) -> None:
        self.store = store
        self._remote = store if isinstance(store, Remote) else None
        self._finder: Finder = store if isinstance(store, Finder) else ByVerbs(store)
        self.strategy = strategy
        self._strategy_name = strategy.name
        self.telling = telling
        self.doubts = Doubts()
        self.words = words
        self._clock = clock
        self._losing: LosesWrites | None = None
        self._set_backs: dict[Root, int] = {}
        """How often the store was found to have lost writes of a root, as far as that has been dealt with."""
        if isinstance(store, LosesWrites) and isinstance(store.set_backs, Mapping):
            self._losing, self._set_backs = store, dict(store.set_backs)
        self._confirmed: defaultdict[Root, set[str]] = defaultdict(set)
        """Where several logs answer: entries that were revalidated, each for one use."""

    def known_here(self, knowledge: Knowledge) -> Knowledge:
        """What is known under this strategy: nothing, where another one has been at work."""
        if knowledge.strategy == self._strategy_name:
            return knowledge
        place = Place(mark=knowledge.place.mark)
        vouched = knowledge.lapsed.vouched if knowledge.vouched else None
        return Knowledge(
            strategy=self.strategy.name,
            place=place,
            vouched=vouched,
            generation=knowledge.generation,
            roots=knowledge.roots,
        )

    def moment(self, wanted: "Wanted | None") -> AbstractContextManager[None]:
        """For as long as it lasts, this thread sees a store of another machine as it is at one time."""
        return _ANY_TIME if self._remote is None else self._remote.moment(wanted)

    def in_moments(
        self, steps: Generator[Step, Reply | None, Outcome], wanted: "Wanted | None" = None
    ) -> Generator[Step, Reply | None, Outcome]:
        """The same for each of some steps."""
        return steps if self._remote is None else InMoments(steps, self._remote.moment, wanted)

    def wanted(
        self, root: Root, operation: str, request: Fields, tags: tuple[str, ...] = ()
    ) -> "Wanted | None":
        """What is looked at for a request, and counted, for a store that fetches all of it at once."""
        return None if self._remote is None else self._remote.wanted(root, operation, request, tags)

    def known(self, root: Root) -> Known:
        """What the store has on record of a server. One that has lost writes leaves the server in doubt: what they dropped may be back."""
        known = self.store.known(root)
        if self._losing is not None and self._losing.set_backs:
            self._heed_set_backs(self._losing, root)
        return known

    def _heed_set_backs(self, losing: LosesWrites, root: Root) -> None:
        set_back_count = losing.set_backs.get(root, 0)
        if self._set_backs.get(root, 0) != set_back_count:
            self._set_backs[root] = set_back_count
            self.doubts.add(root)
            self.telling.store_has_lost(f"the memory {losing.where} has lost what was written to it last")

    def on_record(self, root: Root, *, is_guess: bool = False) -> tuple[Known, Knowledge]:
        """The same, with what is known under this strategy.

        A guess spares a store of another machine a look, and may have passed. What was decided by it counts once it is written, or if it
        `is_still` so.
        """
        known = None
        if is_guess and self._remote is not None and self.words is None:
            known = self._remote.guessed(root)
        if known is None:
            known = self.known(root)
        knowledge = known.knowledge
        return known, knowledge if knowledge.strategy == self._strategy_name else self.known_here(knowledge)

    def is_still(self, root: Root, known: Known, parts: Iterable[str] = ()) -> bool:
        """Whether what was guessed is on record. Where that takes a look, it counts what depends on the tables among these parts too."""
        if self._remote is None:
            return True
        return self._remote.is_still(root, known.revision, [table_tag(one) for one in parts if one != RULES])

    def knowing(self, root: Root) -> Knowledge:
        """What is known of a server, for whoever deals with a store that does not say."""
        return self.on_record(root)[1]

    def knowledge(self, root: Root) -> Knowledge | None:
        """What is known of a server; None when the store does not say."""
        try:
            return self.known_here(self.known(root).knowledge)
        except StoreError as error:
            self.telling.store_failed(error, "read")
            return None

    def at(self, root: Root, *, asking: bool) -> str:
        """What to say in the header `Contract-At` of a request."""
        knowledge = self.knowledge(root)
        place = Place() if knowledge is None else knowledge.place
        # what could not be dealt with is settled by an answer: else a server that has nothing new to tell says nothing at all
        is_question = asking or root in self.doubts
        return place.new_question().header if is_question else place.new_header()

    def rewrite(self, root: Root, decide: Callable[[Known], Write | None]) -> Written | None:
        """Write what is decided about what is known of a server; None when that is nothing, or the store does not write it.

        Another may write between the look and the write: then nothing was written, and it is decided anew.
        """
        with self.telling.failing("write"):
            for _ in range(MOST_TRIES):
                known = self.known(root)
                write = decide(known)
                if write is None:
                    return None
                written = self.store.write(root, known.revision, write)
                if written is not None:
                    self.telling.store_works("write")
                    return written
        return None

    def knows_of(self, root: Root) -> bool:
        """Whether anything of a server can go stale: something is known of it, or the store does not say."""
        knowledge = self.knowledge(root)
        if knowledge is None:
            return True
        return bool(knowledge.place.at or knowledge.versions.tables or knowledge.state_tag)

    def is_placed(self, root: Root) -> bool:
        """Whether a position in the log of a server is known."""
        knowledge = self.knowledge(root)
        return knowledge is not None and knowledge.place.at is not None

    def word_about(self, root: Root) -> Word:
        """Whose word counts about a server."""
        word = None if self.words is None else self.words.word_about(root, self._clock)
        is_held = lambda table: self.store.count(root, table_tag(table)) > 0  # noqa: E731
        return word or Word(root, self.strategy, is_held)

    def standing_of(self, root: Root, knowledge: Knowledge | None) -> Standing:
        """Whether anything that is remembered of a server may be used now, given what is known of it."""
        standing = self.doubts.standing_of(root)
        if not isinstance(standing, Usable):
            return standing
        return Revalidate("the store fails") if knowledge is None else self._standing_by(root, knowledge)

    def _standing_by(self, root: Root, knowledge: Knowledge) -> Standing:
        """The same, where nothing that was seen of the server is still to be dealt with."""
        if knowledge.place.doubt:
            return Revalidate("a reply of the server may be newer than what is known")
        lack = None if self.words is None else self.word_about(root).lacks(knowledge)
        return USABLE if lack is None else Revalidate(lack)

    def is_split(self, knowledge: Knowledge) -> bool:
        """Whether several logs were found to answer for a server not long ago."""
        return knowledge.split_at is not None and abs(self._clock() - knowledge.split_at) < SPLIT_S

    def confirm(self, root: Root, entries: Iterable[Entry]) -> None:
        """These were given by the server just now."""
        if len(self._confirmed[root]) > _MOST_CONFIRMED:
            self.unconfirm(root)
        self._confirmed[root].update(entry.id for entry in entries)

    def unconfirm(self, root: Root) -> None:
        """What was given before this use does not count for it: another log may answer now."""
        self._confirmed.pop(root, None)

    def must_ask_first(self, root: Root) -> bool:
        """Whether somebody must vouch for a server before anything that is remembered of it is used."""
        return (
            self.words is not None
            and self.knows_of(root)
            and isinstance(self.standing_of(root, self.knowledge(root)), Revalidate)
            and not self.word_about(root).is_its_own
        )

    def is_clear(self, root: Root) -> bool:
        """Whether there is nothing to revalidate. A doubt alone is left to the next reply."""
        return not self.must_ask_first(root) and not self.has_suspects(root)

    def usable(
        self, root: Root, operation: str, request: Fields, *, only_to_look: bool = False
    ) -> list[Entry]:
        """The entries that hold for this request and may be used now, oldest first. What is not only looked at counts as used.

        Two race here: whoever drops what a movement has made stale and withholds the rest meanwhile, and this. So first it is looked whether
        anything is withheld, and then what is there.
        """
        if self.doubts.standing_of(root) is not USABLE:
            return []
        known, found = self._found(root, operation, request)
        if not found or (self._losing is not None and self._losing.set_backs and root in self.doubts):
            return []
        knowledge = known.knowledge
        if knowledge.strategy != self._strategy_name:
            knowledge = self.known_here(knowledge)
        standing: Standing = USABLE
        if knowledge.place.doubt or self.words is not None:
            standing = self._standing_by(root, knowledge)
        is_split = knowledge.split_at is not None
        entries, finder = [], self._finder
        for one in found:
            entry = one.entry
            if standing_of(entry, knowledge, standing) is USABLE and (
                not is_split or self._is_usable(entry, knowledge, standing)
            ):
                entries.append(entry)
                if not only_to_look:
                    try:
                        finder.note(one)
                    except StoreError as error:  # which takes nothing from what was found
                        self.telling.store_failed(error, "write")
        if entries and not only_to_look and root in self._confirmed:
            self._confirmed[root].difference_update([entry.id for entry in entries])
        return entries

    def _found(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        """What is known, and what holds for this request, whether it may be used or not."""
        telling = self.telling
        try:
            known, found = self._finder.find(root, operation, request)
        except StoreError as error:
            telling.store_failed(error, "read")
            return _NOTHING_KNOWN, []
        if self._losing is not None and self._losing.set_backs:
            self._heed_set_backs(self._losing, root)
        if telling.failing_at:
            telling.store_works("read")
        return known, found

    def suspects(self, root: Root, operation: str, request: Fields) -> list[Entry]:
        """The entries that hold for this request and must be revalidated, each for itself."""
        known, found = self._found(root, operation, request)
        knowledge = self.known_here(known.knowledge)
        standings = ((one.entry, self._standing_in(one.entry, knowledge, USABLE)) for one in found)
        return [entry for entry, standing in standings if isinstance(standing, Revalidate)]

    def standing_of_entry(self, entry: Entry) -> Standing:
        """Whether an entry may be used now, for the requests that it holds for."""
        knowledge = self.knowledge(entry.root)
        server = self.standing_of(entry.root, knowledge)
        return server if knowledge is None else self._standing_in(entry, knowledge, server)

    def _is_usable(self, entry: Entry, knowledge: Knowledge, server: Standing) -> bool:
        return isinstance(self._standing_in(entry, knowledge, server), Usable)

    def _standing_in(self, entry: Entry, knowledge: Knowledge, server: Standing) -> Standing:
        standing = standing_of(entry, knowledge, server)
        if knowledge.split_at is None or not isinstance(standing, Usable) or not self.is_split(knowledge):
            return standing
        if entry.id in self._confirmed[entry.root]:
            return standing
        return Revalidate("several logs answer for the server, so that is done before each use")

    def has_suspects(self, root: Root) -> bool:
        """Whether there may be any, for any request."""
        try:
            known = self.known(root)
            if known.revision == 0:  # nothing was ever written of it
                return False
            return self.known_here(known.knowledge).generation > 0 or self.store.count(root, SUSPECT) > 0
        except StoreError as error:
            self.telling.store_failed(error, "read")
            return False

    def root_of(self, url: str) -> Root:
        """Where the contract lives that a URL is under, as far as replies have told: the origin, or a path on it."""
        origin, path = origin_of(url), urlsplit(url).path
        knowledge = self.knowledge(origin)
        below = [] if knowledge is None else [root for root in knowledge.roots if is_below(path, root)]
        return self._root_below(origin, path, max(below, key=len, default=""))

    def root_told(self, root: Root, path: str, told: str) -> Root:
        """Where the contract lives that a request for this path was under, by what the reply has told. It is noted."""
        origin = root.removesuffix(urlsplit(root).path)
        if told:
            self.note_root(origin + told, lives=True)
        return self._root_below(origin, path, told)

    def _root_below(self, origin: Root, path: str, told: str) -> Root:
        """Where a contract lives, by what a server has told; but not above where keys are pinned, which no server gets around."""
        pinned = origin if self.words is None else self.words.root_of(origin, path)
        return max(pinned, origin + told, key=len)

    def note_root(self, root: Root, *, lives: bool) -> bool:
        """Whether a contract lives at this path of its origin. Tells whether that is news. Of too many, those stay that were told last."""
        path = urlsplit(root).path

        def noting(known: Known) -> Write | None:
            roots = known.knowledge.roots
            if lives == (path in roots):
                return None
            roots = (*roots, path)[-_MOST_ROOTS:] if lives else tuple(one for one in roots if one != path)
            return Write(msgspec.structs.replace(known.knowledge, roots=roots))

        return self.rewrite(root.removesuffix(path), noting) is not None
