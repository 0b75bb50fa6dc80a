"""What a reply does to the place in a server's log where a memory stands. No I/O and no clock.

Chance is drawn only for what must never have been there before: marks, nonces, and the name of a doubt that is raised.

Replies are late, repeated, replayed and made by workers that lag behind. So a number alone decides nothing. What counts is whether a reply was made
after the memory took up the position that it stands at. A reply shows that by repeating that position with the memory's mark, which is drawn
anew whenever the memory goes anywhere but forward. An answer to a question shows it by the question's nonce.
"""

import os

import msgspec
from msgspec import UNSET

from shelflife.contract.positions import NOWHERE, Account, Moved, Named, Position

__all__ = ["Adopted", "Current", "Doubted", "Forward", "OldNews", "Place", "Verdict", "judged", "new_mark"]

_MARK_LENGTH = 6
_MORE_OF_A_NONCE = 6


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a server's log a memory stands, and what it doubts."""

    at: str | None = None
    """The position; None when none is known."""

    mark: str = ""
    """Drawn anew whenever the memory took up a position that does not follow from the one before."""

    doubt: str = ""
    """Names the last reply that may be newer than what is known; empty when there is none.

    It is stored, and only an answer of the server lifts it. What one process could not deal with is in its `shelf.Doubts`.
    """

    @property
    def base(self) -> str:
        """The position and the mark, as a reply repeats them."""
        at = self.at or NOWHERE
        return f"{at}:{self.mark}" if self.mark else at

    def new_question(self, *, is_for_a_key: bool = False) -> Named:
        """What a question names, with a nonce of its own. Signed answers to a short one could be collected beforehand."""
        at = None if self.at is None else Position.from_text(self.at)
        more = os.urandom(_MORE_OF_A_NONCE).hex() if is_for_a_key else ""
        return Named(at, self.mark, self._new_nonce() + more)

    def new_header(self) -> str:
        """What a request says in `Contract-At`. In doubt, and while nothing is known, it is a question: its own reply can settle that."""
        return f"{self.base};n={self._new_nonce()}" if self.doubt or self.at is None else self.base

    def _new_nonce(self) -> str:
        """Of a question. It tells of which doubt was known when that was asked."""
        return f"{self.doubt}.{new_mark()}" if self.doubt else new_mark()

    def doubted(self) -> "Place":
        """With another doubt, which has a new name."""
        return msgspec.structs.replace(self, doubt=new_mark())


class Current(msgspec.Struct, frozen=True):
    """The reply is of the very state that is known."""


class Forward(msgspec.Struct, frozen=True):
    """The server has gone on from what is known."""

    moved: Moved


class Adopted(msgspec.Struct, frozen=True):
    """What is known is not in the server's log, or too far back. The state of the reply takes its place."""

    is_too_old: bool = False
    """Whether it is in the log, and only further back than the server can tell of."""


class Doubted(msgspec.Struct, frozen=True):
    """The reply may be newer than what is known, and does not prove it. The server must be asked."""


class OldNews(msgspec.Struct, frozen=True):
    """The reply is of a state that has passed, or says nothing."""


Verdict = Current | Forward | Adopted | Doubted | OldNews


def judged(place: Place, sent: str | None, said: Account) -> tuple[Verdict, Place]:
    """What a reply means, and where the memory stands with it, but for the mark of what is adopted: it keeps the old one here.

    `sent` is what its request had in `Contract-At`. Whoever carries this out sees to it that `place` is still what is known then.
    """
    base, _, nonce = (sent or "").partition(";n=")
    if nonce and said.nonce == nonce and base == place.base:
        verdict = _answered(place, said)
        if verdict is not None:
            doubt_then = nonce.partition(".")[0]  # when it was asked; what has been raised since stays
            doubt = "" if doubt_then == place.doubt else place.doubt
            return verdict, msgspec.structs.replace(place, at=said.to, doubt=doubt)
    verdict = _seen(place, said)
    if place.at is None and sent and base.partition(":")[2] != place.mark:
        verdict = (
            Doubted()
        )  # it was asked before the mark was drawn, and may be newer than the answer that is under way
    match verdict:
        case Forward() | Adopted():
            return verdict, msgspec.structs.replace(place, at=said.to)
        case Doubted():
            return verdict, place.doubted()
        case _:
            return verdict, place


def _answered(place: Place, said: Account) -> Verdict | None:
    """What an answer means that is about what is known now, and so is later than that; None when it does not say."""
    if said.to == place.at:
        return Current()
    if said.moved is not UNSET and said.since == place.base:
        return Forward(said.moved)
    is_adopted = said.unknown is not UNSET or place.at is None
    return Adopted(said.unknown == "old") if is_adopted else None


def _seen(place: Place, said: Account) -> Verdict:
    """What a reply means that nobody has asked for."""
    if place.at is None:
        return OldNews()  # it may be anybody's; what is asked first settles it
    if said.to == place.at:
        return Current()
    is_of_this_mark = said.since.partition(":")[2] == place.mark
    is_later = said.since == place.base
    if said.unknown is not UNSET and is_later:
        return Adopted(said.unknown == "old")
    if said.unknown in ("ahead", "foreign") and is_of_this_mark:
        return Doubted()  # the server has lost a state that was seen of it
    here, there = Position.from_text(place.at), Position.from_text(said.to)
    if here is None or there is None:
        return OldNews()
    if there.number > here.number:
        return Forward(said.moved) if is_later and said.moved is not UNSET else Doubted()
    return Doubted() if there.number == here.number else OldNews()


def new_mark() -> str:
    """A mark that was never there before."""
    return os.urandom(_MARK_LENGTH // 2).hex()
