"""Whether what is remembered may be used: servers of which something was seen that has not been dealt with."""

from collections import Counter

import msgspec

from shelflife.client.entries import Root
from shelflife.forks import Locking

__all__ = ["USABLE", "Dealing", "Doubts", "Revalidate", "Standing", "Usable", "Withheld"]


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

    def settle(self, root: Root, doubt: int | None) -> None:
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
        if error is None:
            self.doubts.settle(self.root, self.doubt)
        else:
            self.doubts.add(self.root)
