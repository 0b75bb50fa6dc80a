"""Evidence: what a memory has been shown of its server, as an onlooker knows it.

A reply that was made from the end of the log, at a time, is evidence of that time when

- the memory has gone on, or elsewhere, by it;
- or it is an answer to a question, and confirms what is known;
- or the memory doubts since, and the reply was made after everything that was accepted;
- or it was made after that, is of the memory's mark, and is of a higher number or tells of a loss;
- or its request was sent after everything that was accepted. If it named no position, the reply has versions alone, which do not cover
  policies: with those of the position that is known it shows nothing.

A memory cannot see which replies are from the end of the log, and need not: it must not recall what was last true before the latest
evidence. The end of a key's word is evidence too. What an answer tells of some tables alone, by versions, is held to these tables.
"""

from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from shelflife.client import Question
from shelflife.client.entries import Knowledge
from shelflife.contract.positions import AT_HEADER, Named, Position
from tests.histories.servers import Served


class Asked(NamedTuple):
    """A request or a question that was sent."""

    named: Named | None
    """What it says of where its memory stands."""

    is_question: bool
    is_signed: bool
    known_since: int
    """Which acceptance was the last one then; -1 where it counts for nothing."""

    parts: tuple[str, ...] = ()
    """The tables, and `rules`, about whose versions it asks. The answer speaks for these and no others."""

    @classmethod
    def of(cls, step, known_since):
        is_question = isinstance(step, Question)
        header = step.headers.get(AT_HEADER)
        asked = parse_qs(urlsplit(step.url).query) if is_question else {}
        parts = [one.partition(":")[0] for one in asked.get("since", ())] + ["rules"] * ("rules" in asked)
        if "from" in asked:
            header = f"{asked['from'][0]};n={asked['nonce'][0]}"
        named = None if header is None else Named.from_header(header)
        is_signed = is_question and "/signed?" in step.url
        return cls(named, is_question, is_signed, known_since, tuple(parts))


class Clues:
    """What a memory, and all who share its store, have been shown."""

    def __init__(self, known_since=0):
        self.known_since = known_since
        self.accepted_at = -1
        self.evident_at = -1
        self.why = "nothing"

    def copy(self):
        other = Clues()
        other.__dict__.update(self.__dict__)
        return other

    def note(self, why, made_at):
        """The latest is the strictest: it is all that must be kept."""
        if made_at > self.evident_at:
            self.evident_at, self.why = made_at, why

    def take_in(
        self,
        asked: Asked,
        served: Served,
        before: Knowledge,
        after: Knowledge,
        *,
        has_keys,
        has_known_versions,
        new_serial,
    ):
        """What became of a reply shows what it was taken for."""
        old, new = before.place, after.place
        has_moved = (old.at, old.mark, before.versions) != (new.at, new.mark, after.versions)
        named = asked.named
        has_asked = named is not None and bool(named.nonce) and (asked.is_signed or not has_keys)
        is_about_known = named is not None and named.base == old.base
        is_confirmed = has_asked and is_about_known and served.reply.status == 200
        is_confirmed = is_confirmed and served.position == old.at == new.at
        if served.is_from_end and served.reply.status < 500 and not asked.parts:
            is_later = served.made_at > self.accepted_at
            is_of_this_mark = named is not None and named.mark == old.mark and old.at is not None
            is_newer = is_of_this_mark and (served.tells_loss or _number(served.position) > _number(old.at))
            shown = {
                "gone by": has_moved,
                "confirmed": is_confirmed,
                "doubt": is_later and bool(new.doubt) and new.doubt != old.doubt,
                "newer": is_later and is_newer,
                "asked": asked.known_since == self.known_since and not (named is None and has_known_versions),
            }
            for why, is_shown in shown.items():
                if is_shown:
                    self.note(why, served.made_at)
        if has_moved or is_confirmed:
            self.accepted_at = max(self.accepted_at, served.made_at)
            self.known_since = new_serial


def _number(position):
    return Position.from_text(position).number
