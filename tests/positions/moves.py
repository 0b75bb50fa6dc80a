"""What can happen: moves of servers, of agents and of the network between them."""

from typing import NamedTuple

from tests.positions.evidence import EXPIRED, Clues, Delivery
from tests.positions.world import KEYS

ORDINARY = (
    *["reload"] * 2,
    *["reload_by"] * 2,
    *["catch_up"] * 2,
    *["request"] * 3,
    *["serve_request"] * 4,
    *["get_reply"] * 4,
    *["replay"] * 3,
    *["exchange"] * 5,
    *["serve_question"] * 2,
    *["get_answer"] * 2,
    *["settle"] * 2,
    *["suspect"] * 2,
    "ask_again",
    "trim",
    "back_off",
)
"""What can happen everywhere, as often as it stands here."""


class Move(NamedTuple):
    """One thing that happens. Numbers are taken modulo what there is: every move is possible at any time."""

    verb: str
    key: int = 0
    """Which of the two."""

    worker: int = 0
    """Which of the two."""

    value: int = 0
    """What a key is set to; how far a log goes back; which of two ways."""

    back: int = 0
    """Which message, counted from the newest."""

    who: int = 0
    """Whose memory."""

    def __str__(self):
        told = (f"{name}={value}" for name, value in zip(self._fields[1:], self[1:], strict=True) if value)
        return " ".join((self.verb, *told))


class Moves:
    """What each move does to a history; every move is the method of its name."""

    # Moves of servers

    def do_reload(self, move):
        self.servers.reload(KEYS[move.key % 2], move.value % 3)

    def do_reload_by(self, move):
        """A reload by a worker, which so has it itself."""
        self.do_reload(move)
        self.servers.workers[move.worker % 2].catch_up()

    def do_catch_up(self, move):
        worker = self.servers.workers[move.worker % 2]
        worker.catch_up(worker.at + 1 if move.value % 2 else None)

    def do_lose_log(self, move):
        worker = self.servers.workers[move.worker % 2]
        worker.reaches_log = not worker.reaches_log

    def do_compact(self, move):
        self.servers.compact()

    def do_deploy(self, move):
        self.servers.deploy(self.servers.workers[move.worker % 2])

    def do_redeploy(self, move):
        self.servers.redeploy(self.servers.workers[move.worker % 2])

    def do_renew(self, move):
        self.servers.renew(move.value % (self.servers.log.head + 1))

    def do_restart(self, move):
        self.servers.restart(move.value % 3)
        if self.environment.restarts_cut:
            self.replies = [each for each in self.replies if each.made_at in self.come]
            self.answers = [each for each in self.answers if each.made_at in self.come]

    def do_split(self, move):
        self.servers.split(move.value % 3, is_fork=bool(move.key % 2))

    # Moves of agents

    def _who(self, move):
        return move.who % len(self.memories)

    def do_request(self, move):
        self.send(self._who(move), KEYS[move.key % 2])

    def do_exchange(self, move):
        asked = self.send(self._who(move), KEYS[move.key % 2])
        self.deliver(asked.who, asked, self.serve(asked, move.worker % 2))

    def do_plain(self, move):
        """A request that names nothing. Its reply comes at once, or with the next such request."""
        plain = self._ask("plain", self._who(move), KEYS[move.key % 2])
        self.late.append(self.serve(plain, move.worker % 2))
        if move.value % 2 == 0:
            for said in self.late:
                self.deliver(said.asked.who, said.asked, said)
            self.late.clear()

    def do_ask_again(self, move):
        who = self._who(move)
        if self.memories[who].must_ask and not self.is_backing_off:
            self.ask(who)

    def do_settle(self, move):
        """A question, answered at once."""
        who = self._who(move)
        if self.memories[who].must_ask and not self.is_backing_off:
            asked = self.ask(who)
            self.deliver(who, asked, self.serve(asked, move.worker % 2))

    def do_suspect(self, move):
        """A question about a suspect; answered at once, or left under way."""
        who, key = self._who(move), KEYS[move.key % 2]
        entry = self.memories[who].entries.get(key)
        if entry is not None and entry.is_suspect and not self.is_backing_off:
            asked = self.ask_about(who, key)
            if move.value % 2:
                self.deliver(who, asked, self.serve(asked, move.worker % 2))

    def do_back_off(self, move):
        self.is_backing_off = not self.is_backing_off

    def do_trim(self, move):
        """There is no room for an entry."""
        memory = self.memories[self._who(move)]
        left = {key: entry for key, entry in memory.entries.items() if key != KEYS[move.key % 2]}
        memory.swap(memory.revision, memory.held, left)

    def do_forget(self, move):
        who = self._who(move)
        self.memories[who].forget()
        self.clues[who] = Clues(self.servers.new_serial())

    def do_expire(self, move):
        """The key's word is no longer good."""
        who = self._who(move)
        memory = self.memories[who]
        memory.swap(memory.revision, memory.held._replace(expired_at=self.servers.time), memory.entries)
        if EXPIRED in self.environment.evidence:
            self.clues[who].note(EXPIRED, self.servers.time)

    def do_back_up(self, move):
        who = self._who(move)
        memory = self.memories[who]
        self.backups[who] = memory.revision, memory.held, memory.entries, self.clues[who].copy()

    def do_set_back(self, move):
        """The memory's file is replaced by its backup."""
        who = self._who(move)
        if self.backups[who] is None:
            return
        memory = self.memories[who]
        memory.revision, memory.held, memory.entries, clues = self.backups[who]
        self.clues[who] = clues.copy()
        if self.environment.set_back_forgets:
            for under_way in (self.requests, self.replies, self.questions, self.answers, self.deliveries):
                under_way.clear()

    # Moves of the network

    def do_serve_request(self, move):
        if self.requests:
            self.serve(_from_newest(self.requests, move.back, 3), move.worker % 2)

    def do_serve_question(self, move):
        if self.questions:
            self.serve(_from_newest(self.questions, move.back, 3), move.worker % 2)

    def do_get_reply(self, move):
        if self.replies:
            said = _from_newest(self.replies, move.back, 4)
            self.deliver(said.asked.who, said.asked, said)

    def do_get_answer(self, move):
        if self.answers:
            said = _from_newest(self.answers, move.back, 3)
            self.deliver(said.asked.who, said.asked, said)

    def do_replay(self, move):
        """A reply of any time is taken for the response to one of the last two requests with the same key."""
        found = self._replayed(move)
        if found is not None:
            asked, said = found
            self.deliver(asked.who, asked, said, asked is not said.asked)

    def _replayed(self, move):
        if not self.replies:
            return None
        said, who = self.replies[move.back % len(self.replies)], self._who(move)
        fitting = [each for each in self.requests if each.key == said.asked.key and each.who == who][-2:]
        is_first_contact = said.asked.who != who and self.memories[who].held.known is None
        if not fitting or (is_first_contact and not self.environment.first_contact_crosses):
            return None
        return fitting[move.value % len(fitting)], said

    def do_begin(self, move):
        """A reply or an answer begins to be taken in."""
        come = self.answers if move.value % 2 else self.replies
        if come:
            said = _from_newest(come, move.back, 4)
            self.deliveries.append(Delivery(said.asked.who, said.asked, said))
            self.advance(self.deliveries[-1])

    def do_go_on(self, move):
        """One step more of something that is being taken in."""
        if self.deliveries:
            delivery = _from_newest(self.deliveries, move.back, 3)
            if self.advance(delivery):
                self.deliveries.remove(delivery)


def _from_newest(things, back, most):
    return things[max(0, len(things) - 1 - back % most)]
