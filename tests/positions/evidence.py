"""Evidence: what a memory has been shown, and so must not recall against.

All of it was made from the end of the log. A memory cannot see that, and need not: it must not recall what
was last true before the latest of these.
"""

from tests.positions.client import ADOPTED, CURRENT, DOUBTED, FORWARD

GONE_BY = "gone by"
"""A reply by which the memory has gone on, or elsewhere."""

CONFIRMED = "confirmed"
"""An answer to a question which says that nothing has moved."""

DOUBT = "doubt"
"""A reply that has raised a doubt, and was made after everything that was accepted."""

NEWER = "newer"
"""One that was made after that too, is of this mark, and shows that the log has gone on or lost something."""

ASKED = "asked"
"""A reply whose request was sent after everything that was accepted."""

EXPIRED = "expired"
"""The end of a key's word."""


class Delivery:
    """A reply on its way into a memory: read, decided, written. Others may come between."""

    def __init__(self, who, asked, said, is_replay=False):
        self.who = who
        self.asked = asked
        """What the reply is taken to answer."""

        self.said = said
        self.is_replay = is_replay
        self.read = None
        """What the decision is made from: the revision, what was held, the entries."""

        self.clues = None
        """Those of the memory, and a copy from when it was read."""

        self.decision = None


class Clues:
    """What one memory has been shown."""

    def __init__(self, known_since=0):
        self.known_since = known_since
        """Which acceptance was the last."""

        self.accepted_at = -1
        self.evident_at = 0
        self.why = ""

    def copy(self):
        other = Clues()
        other.__dict__.update(self.__dict__)
        return other

    def note(self, kind, made_at):
        """The latest evidence is the strictest: it is all that must be kept."""
        if made_at > self.evident_at:
            self.evident_at, self.why = made_at, kind

    def take_in(self, delivery, as_read, promised, serial, stamp_known):
        """What a reply shows. `as_read` is a copy of these clues from when the memory was read.

        One that has stamps alone shows nothing where they are those at what is known: it cannot tell of code.
        """
        said, verdict = delivery.said, delivery.decision.verdict
        is_gone_by = verdict in (FORWARD, ADOPTED)
        is_confirmed = verdict == CURRENT and delivery.decision.is_answer
        if said.is_from_head:
            held = delivery.read[1]
            is_later = said.made_at > as_read.accepted_at
            is_lost = said.how in ("ahead", "foreign")
            is_stamped = said.how == "stamped"
            is_newer = held.known is not None and (is_lost or said.to.number > held.known.number)
            is_newer = is_newer and not is_stamped
            shown = {
                GONE_BY: is_gone_by,
                CONFIRMED: is_confirmed,
                DOUBT: is_later and verdict == DOUBTED,
                NEWER: is_later and is_newer and said.asked.mark == held.mark,
                ASKED: not delivery.is_replay
                and delivery.asked.known_since == as_read.known_since
                and not (is_stamped and said.stamp == stamp_known),
            }
            for kind in promised:
                if shown.get(kind):
                    self.note(kind, said.made_at)
        if is_gone_by or is_confirmed:
            self.accepted_at = max(self.accepted_at, said.made_at)
            self.known_since = serial
