"""Histories: moves of servers, agents and the network, one after another, and what must hold after each.

- S: nothing is recalled that has not been true since the latest evidence was made.
- N: nothing is dropped whose grounds have not changed, while the log only grows and questions are answered.
- L: once everything works, both keys are soon recalled truthfully, whether or not questions are answered.
- D: a reply that was made for a client who is shown something else is never taken for one's own.
- K: with keys, nothing leads back, or into another log, before all is forgotten.
"""

from typing import NamedTuple

from tests.positions.client import ADOPTED, CURRENT, DOUBTED, FORWARD, Memory, Rules
from tests.positions.evidence import ASKED, CONFIRMED, DOUBT, GONE_BY, NEWER, Clues, Delivery
from tests.positions.moves import Moves
from tests.positions.world import ALL, KEYS, Servers

LONGEST_HEALING = 4
"""So many rounds of one exchange for each key may pass until both are recalled."""


class Broken(Exception):
    """A property does not hold; its letter comes first."""


class Environment(NamedTuple):
    """What can happen, and what is promised."""

    verbs: tuple[str, ...] = ()
    """What can happen beside the ordinary."""

    evidence: tuple[str, ...] = (GONE_BY, CONFIRMED, DOUBT, NEWER, ASKED)
    """What S is promised for; without any it is not."""

    has_random_ids: bool = False
    """Whether a log that begins anew has an id of its own; otherwise the id follows from what is declared."""

    has_keys: bool = False
    """Whether keys are pinned. Answers are signed then, and nothing else is."""

    is_disclosing_twice: bool = False
    """Whether there are two memories, whose clients are shown different things."""

    restarts_cut: bool = False
    """With a restart all replies are lost that were under way. Those that have come may still come again."""

    set_back_forgets: bool = False
    """Whoever has asked something forgets it when the memory is set back."""

    first_contact_crosses: bool = False
    """A memory that knows nothing yet may be given a reply that was made for another."""

    answers_at_once: bool = False
    """Every doubt and every suspect is asked about after each move."""

    promises_no_needless_drops: bool = False
    heals: bool | None = None
    """L is checked in the end, with questions answered (True) or never answered (False)."""


class History(Moves):
    """One world, played move by move."""

    def __init__(self, environment, rules=None):
        self.environment = environment
        self.rules = rules or Rules()
        self.servers = servers = Servers(self.rules, environment.has_random_ids)
        shown = (ALL, "counts") if environment.is_disclosing_twice else (ALL,)
        self.memories = [Memory(self.rules, servers.new_serial, environment.has_keys, each) for each in shown]
        self.clues = [Clues() for _ in shown]
        self.backups = [None for _ in shown]
        self.requests, self.replies = [], []
        self.questions, self.answers = [], []
        self.late = []
        """Replies with stamps alone that have not come yet."""

        self.deliveries = []
        self.come = set()
        """When the replies were made that have come."""

        self.is_backing_off = False
        self.recall_count = 0

    def play(self, moves):
        for move in moves:
            self.make(move)
        if self.environment.heals is not None:
            self.heal(self.environment.heals)

    def make(self, move):
        """One move, and whatever must hold after it."""
        self.servers.time += 1
        getattr(self, f"do_{move.verb}")(move)
        if self.environment.answers_at_once:
            self.answer_everything(move.worker)
        if self.environment.evidence:
            self._check_recalls()

    # The properties

    def _check_recalls(self):
        for memory, clues in zip(self.memories, self.clues, strict=True):
            if memory.must_ask:
                continue
            for key, entry in memory.entries.items():
                if entry.is_suspect:
                    continue
                self.recall_count += 1
                if self.servers.last_true_at(key, entry.fix) < clues.evident_at:
                    truth = self.servers.truth.fix(key)
                    raise Broken(
                        f"S: {key} is recalled as {tuple(entry.fix)} and is {tuple(truth)}; "
                        f"there was evidence ({clues.why}) at {clues.evident_at}"
                    )

    def _check_drops(self, entries, decision, said):
        if not (self.environment.promises_no_needless_drops and self.servers.is_whole):
            return
        for key in decision.dropped:
            if entries[key].change_count == said.change_counts[key]:
                raise Broken(f"N: {key} is dropped and has not changed")

    def _check_keys(self, before, after):
        if before.log_id is None or not self.environment.has_keys:
            return
        if after.log_id != before.log_id or after.known.number < before.known.number:
            raise Broken(f"K: from {before.known} in {before.log_id} to {after.known} in {after.log_id}")

    def _check_disclosure(self, memory, decision, said):
        is_taken = decision.verdict in (CURRENT, FORWARD, ADOPTED)
        if said.asked.shown != memory.shown and is_taken:
            raise Broken(f"D: a reply for somebody who is shown {said.asked.shown} is {decision.verdict}")

    def heal(self, is_answering):
        """Everything works from now on, and nothing that was under way arrives."""
        self.servers.heal()
        self.servers.time += 1
        self.is_backing_off = False
        for who, memory in enumerate(self.memories):
            if self.environment.has_keys and self._is_stuck(memory.held):
                memory.forget()  # only a person can do that, and must
            if not any(
                self._are_both_recalled(who, each % 2, is_answering) for each in range(LONGEST_HEALING)
            ):
                raise Broken(f"L: not recalled after {LONGEST_HEALING} rounds")

    def _are_both_recalled(self, who, worker, is_answering):
        recalls = []
        for key in KEYS:
            asked = self.send(who, key)
            recalls.append(asked.carried == self.servers.truth.fix(key))
            self.deliver(who, asked, self.serve(asked, worker))
            if is_answering:
                self.answer_everything(worker)
        return all(recalls)

    def _is_stuck(self, held):
        """Whether no key can ever lead a memory on from there."""
        log, known = self.servers.log, held.known
        if held.log_id is None or known.number < log.head:
            return held.log_id not in (None, log.id)
        return known.number > log.head or known != log.position(known.number)

    # What is asked and said

    def send(self, who, key):
        self.requests.append(self._ask("request", who, key))
        return self.requests[-1]

    def ask(self, who):
        self.questions.append(self._ask("question", who))
        return self.questions[-1]

    def ask_about(self, who, key):
        """About a suspect."""
        self.questions.append(self._ask("suspect", who, key))
        return self.questions[-1]

    def _ask(self, kind, who, key=None):
        memory = self.memories[who]
        asked = memory.asks(kind, key)._replace(
            known_since=self.clues[who].known_since, who=who, shown=memory.shown
        )
        self.has_asked(memory, asked)
        return asked

    def serve(self, asked, worker):
        said = self.servers.answer(asked, self.servers.workers[worker])
        if asked.kind != "plain":
            (self.replies if asked.kind == "request" else self.answers).append(said)
        self.has_said(worker, said)
        return said

    def answer_everything(self, worker):
        for who, memory in enumerate(self.memories):
            if memory.must_ask:
                asked = self.ask(who)
                self.deliver(who, asked, self.serve(asked, worker))
            for key in KEYS:
                if key in memory.entries and memory.entries[key].is_suspect:
                    asked = self.ask_about(who, key)
                    self.deliver(who, asked, self.serve(asked, worker))

    # What a reply does

    def deliver(self, who, asked, said, is_replay=False):
        delivery = Delivery(who, asked, said, is_replay)
        while not self.advance(delivery):
            pass

    def advance(self, delivery):
        """One step of a delivery: it reads, decides, or writes. Tells whether it is done."""
        memory = self.memories[delivery.who]
        if delivery.read is None:
            delivery.clues = self.clues[delivery.who], self.clues[delivery.who].copy()
            delivery.read = memory.revision, memory.held, memory.entries
            self.come.add(delivery.said.made_at)
            return False
        revision, held, entries = delivery.read
        if delivery.decision is None:
            delivery.decision = memory.decide(held, entries, delivery.asked, delivery.said)
            return False
        decision = delivery.decision
        # Two deliveries race for the memory. What was decided from is still there, or it is decided anew.
        # What changes nothing is not written: it counts as of when the memory was read.
        changes = decision.held is not held or decision.entries is not entries
        if changes and not memory.swap(revision, decision.held, decision.entries):
            delivery.read = delivery.decision = None
            return False
        self.has_decided(memory, held, delivery)
        if delivery.said.how != "silent":
            self._check_disclosure(memory, decision, delivery.said)
            self._check_drops(entries, decision, delivery.said)
            self._check_keys(held, decision.held)
            if delivery.said.asked.shown == memory.shown:
                clues, as_read = delivery.clues
                serial, stamp = self.servers.new_serial(), self.servers.stamp_at(held.known)
                if held.known is None:
                    stamp = held.stamp
                clues.take_in(delivery, as_read, self.environment.evidence, serial, stamp)
        if decision.verdict == DOUBTED and not self.is_backing_off:
            self.ask(delivery.who)
        return True

    # For whoever looks on

    def has_asked(self, memory, asked):
        """Something was sent."""

    def has_said(self, worker, said):
        """Something was replied."""

    def has_decided(self, memory, before, delivery):
        """A reply was taken in."""
