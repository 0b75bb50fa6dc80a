"""A second client, written from the rules and not from our code: what a reply does to a memory.

Each rule can be switched off, to see what it is there for. Numbers are those of the rules as they were handed
down; letters stand for where ours differ:

- a: whatever is adopted makes all entries suspects, which are asked about one by one (in the place of 10)
- b: "too old" is adopted where it is about what is known (3, extended)
- c: a reply is later if it is about what is held at receipt, whichever request it is taken to answer (3)
- d: the first request of a memory is a question, and its answer says where it stands
- f: the nonce of a question tells which doubt was known (8)
- g: replies to requests that name nothing have stamps alone, which are of the position that is known if an answer has said so
- h: while no position is known, other stamps than before draw a mark: no answer that was asked for before them counts
"""

from typing import NamedTuple

from tests.positions.world import ALL, Asked, Fix, Position

CURRENT, FORWARD, ADOPTED, DOUBTED, OLD_NEWS = "Current", "Forward", "Adopted", "Doubted", "OldNews"


class Rules(NamedTuple):
    """All rules, each with its switch."""

    current_lifts_nothing: bool = True
    """2. A reply at what is known lifts no doubt."""

    judged_at_receipt: bool = True
    """3, c. What a reply is about is compared with what is held now, and not with what its request named."""

    marks: bool = True
    """3, 4. Requests and replies carry a mark that is renewed with every adoption."""

    first_contact_marks: bool = False
    """d, otherwise: the first position draws a mark too. Ours is empty until something else is adopted."""

    first_contact_asks: bool = True
    """d. A request that names nothing is a question, and only its answer counts."""

    old_is_adopted: bool = True
    """b. Switched off: "too old" raises a doubt."""

    higher_withholds: bool = True
    """5. In doubt nothing is recalled."""

    lower_echo_doubts: bool = True
    """6. That a former position of this mark is lost raises a doubt, whatever the number."""

    questions_fold: bool = True
    """7. A worker folds to the end of the log before it answers a question."""

    answers_swap: bool = True
    """8. An answer counts only while what its question named is still held."""

    answers_settle_what_was: bool = True
    """8, f. An answer lifts only the doubts that there were when it was asked."""

    requests_ask_in_doubt: bool = True
    """9. A request that is sent in doubt is a question too."""

    adoption_suspects: bool = True
    """a. Switched off: entries stand after an adoption as before."""

    suspects_answered_at_known: bool = True
    """a. An answer about a suspect counts only at what is known when it is received."""

    suspects_answered_without_doubt: bool = True
    """a. An answer about a suspect counts only while nothing is doubted."""

    suspects_answers_are_replies: bool = True
    """5, 8. An answer about a suspect is a reply and an answer like others, and is judged so."""

    old_code_is_silent: bool = True
    """11. A worker whose code is not the log's names no position."""

    keys_lower_nothing: bool = True
    """13. No answer leads back, or into another log."""

    keys_expire: bool = True
    """13. After the end of a key's word nothing is recalled until a signed answer has come."""

    keys_withhold: bool = True
    """13. What keys forbid to adopt raises a doubt. Switched off: it is ignored."""

    checks_by_disclosure: bool = True
    """Clients that are shown different things are given different checks."""

    writes_swap: bool = True
    """A decision is written only over what it was made from."""

    revisions_never_return: bool = True
    """Revisions are drawn, and not counted."""

    doubts_have_names: bool = True
    """f. The nonce carries the name of the last doubt, drawn at random. Switched off: how many there were."""

    confirming_marks: bool = False
    """An answer that confirms what is known renews the mark."""

    stamps_doubt: bool = True
    """g. A reply with stamps alone raises a doubt, unless an answer has named these stamps for what is known."""

    stamps_lapse: bool = True
    """g. What an answer has named is of one position: the memory that goes anywhere else knows no stamps."""

    stamps_mark: bool = True
    """h. Switched off: stamps mean nothing while no position is known."""

    forgetting_marks: bool = True
    """A memory that forgets everything draws a mark, so that what is under way means nothing to it."""


class Held(NamedTuple):
    """Where a memory stands."""

    known: Position | None = None
    mark: str = ""
    raised: int = 0
    settled: int = 0
    doubt: str = ""
    """The name of the last doubt, where doubts have names."""

    log_id: str | None = None
    """Of the log that a key has signed for; only with keys."""

    stamp: tuple[int, int] | None = None
    """What an answer has called the rows at what is known; what was said of them last while nothing is."""

    vouched_at: int = 0
    expired_at: int = 0
    """Until then a key's word counts no more."""

    @property
    def is_doubted(self):
        return self.raised > self.settled


class Entry(NamedTuple):
    """A remembered fix."""

    fix: Fix
    change_count: int
    """How often its grounds had changed by then; no client knows this, it judges needless drops."""

    is_suspect: bool = False


class Decision(NamedTuple):
    """What a reply comes to."""

    verdict: str
    held: Held
    entries: dict[str, Entry]
    dropped: tuple[str, ...] = ()
    is_answer: bool = False
    """Whether it counted as the answer to a question."""


class Memory:
    """What several agents share: one record with a revision."""

    def __init__(self, rules, new_serial, has_keys=False, shown=ALL):
        self.rules = rules
        self.has_keys = has_keys
        self.shown = shown
        self.revision = 0
        self.held = Held()
        self.entries = {}
        self._new_serial = new_serial

    def swap(self, revision, held, entries):
        """Write, unless somebody else has written since that revision was read."""
        if self.rules.writes_swap and revision != self.revision:
            return False
        self.revision = self._new_serial() if self.rules.revisions_never_return else self.revision + 1
        self.held, self.entries = held, entries
        return True

    # What it hands out

    @property
    def must_ask(self):
        """Whether nothing may be recalled before a question is answered."""
        held = self.held
        is_unvouched = self.has_keys and held.vouched_at <= (held.expired_at if self.rules.keys_expire else 0)
        return is_unvouched or (held.is_doubted and self.rules.higher_withholds)

    def recalled(self, key):
        entry = self.entries.get(key)
        return None if entry is None or entry.is_suspect or self.must_ask else entry.fix

    def asks(self, kind, key=None):
        """A request, or a question, as it goes out now."""
        if kind == "plain":
            return Asked(kind, key, None, "", "", self.recalled(key))
        held, is_request = self.held, kind == "request"
        in_doubt = held.is_doubted or self.must_ask
        asks = not is_request or (in_doubt and self.rules.requests_ask_in_doubt)
        asks = asks or (held.known is None and self.rules.first_contact_asks)
        doubts = held.doubt if self.rules.doubts_have_names else held.raised
        nonce = f"{doubts}.{self._new_serial()}" if asks else ""
        return Asked(kind, key, held.known, held.mark, nonce, self.recalled(key) if is_request else None)

    def forget(self):
        renews = self.rules.marks and self.rules.forgetting_marks
        self.swap(self.revision, Held(mark=self._new_mark() if renews else ""), {})

    # What a reply does to it

    def decide(self, held, entries, asked, said):
        """What a reply comes to that is taken to answer `asked`. Nothing is written."""
        if said.how == "silent":
            return Decision(OLD_NEWS, held, entries)
        if said.how == "stamped" and held.known is None and self.rules.stamps_mark:
            if held.stamp != said.stamp:
                held = held._replace(mark=self._new_mark(), stamp=said.stamp)
            return Decision(OLD_NEWS, held, entries)
        if said.how == "stamped":
            is_of_known = held.known is None or (held.stamp == said.stamp and not held.is_doubted)
            if is_of_known or not self.rules.stamps_doubt:
                return Decision(OLD_NEWS, held, entries)
            return Decision(DOUBTED, self._doubted(held), entries)
        is_answer = self._is_answer(held, asked, said)
        if asked.kind == "suspect" and not self.rules.suspects_answers_are_replies:
            verdict, after = OLD_NEWS, held
        elif is_answer:
            verdict, after = self._answered(held, asked, said)
        else:
            verdict, after = self._seen(held, asked, said)
        decision = self._with_entries(verdict, after, entries, said)
        if asked.kind == "suspect":
            decision = self._about_suspect(held, decision, said)
        return decision._replace(is_answer=is_answer and verdict != DOUBTED)

    def _is_answer(self, held, asked, said):
        is_still_held = (asked.named, asked.mark) == (held.known, held.mark)
        is_its_own = asked.nonce != "" and said.asked.nonce == asked.nonce
        return is_its_own and (is_still_held or not self.rules.answers_swap)

    def _answered(self, held, asked, said):
        """An answer is later than what is known."""
        if said.to == held.known:
            verdict = CURRENT
        elif said.how == "moved" and said.base == (held.known, held.mark):
            verdict = FORWARD
        elif self.has_keys and not self._keys_allow(held, said):
            return (DOUBTED, self._doubted(held)) if self.rules.keys_withhold else (OLD_NEWS, held)
        else:
            verdict = ADOPTED
        doubts_then = asked.nonce.partition(".")[0]
        doubts_now = held.doubt if self.rules.doubts_have_names else str(held.raised)
        if doubts_then == doubts_now or not self.rules.answers_settle_what_was:
            held = held._replace(settled=held.raised, doubt="")
        if self.has_keys:
            vouched_at = max(held.vouched_at, said.made_at)
            held = held._replace(log_id=said.log_id, vouched_at=vouched_at)
        if verdict == CURRENT and self.rules.confirming_marks:
            held = held._replace(mark=self._new_mark())
        held = self._at(held, said, verdict)
        return verdict, held._replace(stamp=said.stamp) if asked.kind == "question" else held

    def _keys_allow(self, held, said):
        """Signed, it may be gone up to, but only in the log that the keys have signed for before."""
        if held.log_id is None or not self.rules.keys_lower_nothing:
            return True
        return said.log_id == held.log_id and said.to.number > held.known.number

    def _seen(self, held, asked, said):
        """Any other reply has to show that it is later, or is doubted if it might be."""
        if held.known is None and self.rules.first_contact_asks:
            is_from_before = self.rules.stamps_mark and asked.mark != held.mark
            return (DOUBTED, self._doubted(held)) if is_from_before else (OLD_NEWS, held)
        if held.known is None:
            return ADOPTED, self._at(held, said, ADOPTED)
        if said.to == held.known:
            after = held if self.rules.current_lifts_nothing else held._replace(settled=held.raised)
            return CURRENT, after
        now = (held.known, held.mark)
        is_about_known = said.base == (now if self.rules.judged_at_receipt else (asked.named, asked.mark))
        is_of_this_mark = said.asked.mark == held.mark
        is_lost = said.how in ("ahead", "foreign")
        verdict = OLD_NEWS
        if is_about_known and (is_lost or said.how == "old"):
            verdict = ADOPTED
            if self.has_keys:
                verdict = DOUBTED if self.rules.keys_withhold else OLD_NEWS
            elif not is_lost and not self.rules.old_is_adopted:
                verdict = DOUBTED
        elif is_lost and is_of_this_mark and self.rules.lower_echo_doubts:
            verdict = DOUBTED
        elif is_about_known and said.how == "moved" and said.to.number > held.known.number:
            verdict = FORWARD
        elif said.to.number >= held.known.number:
            verdict = DOUBTED
        if verdict == DOUBTED:
            return verdict, self._doubted(held)
        return verdict, self._at(held, said, verdict)

    def _doubted(self, held):
        return held._replace(raised=held.raised + 1, doubt=f"d{self._new_serial()}")

    def _at(self, held, said, verdict):
        if verdict in (FORWARD, ADOPTED) and self.rules.stamps_lapse:
            held = held._replace(stamp=None)
        if verdict == FORWARD:
            return held._replace(known=said.to)
        if verdict != ADOPTED:
            return held
        renews = self.rules.marks and (held.known is not None or self.rules.first_contact_marks)
        return held._replace(known=said.to, mark=self._new_mark() if renews else held.mark)

    def _new_mark(self):
        return f"m{self._new_serial()}"

    def _with_entries(self, verdict, held, entries, said):
        """What becomes of the entries when the memory stands there."""
        dropped = ()
        if verdict == FORWARD:
            dropped = tuple(key for key in entries if said.moved & {key, "code"})
            entries = {key: entry for key, entry in entries.items() if key not in dropped}
        elif verdict == ADOPTED and self.rules.adoption_suspects:
            entries = {key: entry._replace(is_suspect=True) for key, entry in entries.items()}
        is_at_known = verdict in (CURRENT, FORWARD, ADOPTED)
        if is_at_known and said.asked.kind == "request" and said.fix is not None:
            entries = {**entries, said.asked.key: Entry(said.fix, said.change_counts[said.asked.key])}
        return Decision(verdict, held, entries, dropped)

    def _about_suspect(self, held, decision, said):
        """The same fix stands again, another one goes."""
        key = said.asked.key
        entry = decision.entries.get(key)
        is_doubted = held.is_doubted or decision.held.is_doubted
        if (
            entry is None
            or (self.rules.suspects_answered_at_known and said.to != held.known)
            or (self.rules.suspects_answered_without_doubt and is_doubted)
        ):
            return decision
        if entry.fix == said.fix:
            stands = Entry(said.fix, said.change_counts[key])
            return decision._replace(entries={**decision.entries, key: stands})
        left = {each: entry for each, entry in decision.entries.items() if each != key}
        return decision._replace(entries=left, dropped=(*decision.dropped, key))
