"""Histories on the real server and the real memory: moves, one after another, and what must hold after each.

- S: nothing is recalled that has not been true since the latest evidence was made.
- E: whatever is recalled is what the server says at the very state that the memory has been told of.
- N: nothing goes whose grounds have not changed in value.
- C: no request with a precondition is carried out with a value that is stale at the server.
- R: nothing fails inside the memory.
- L: once everything works, all that is still true can be recalled without any request, all that is true after some, and nothing else.

Where requests name no position, the memory has versions, which have no order and do not cover policies. So less is promised there:

- A fix is true when any code says so that has run: nobody is told of a deploy.
- N goes by tables where the server cannot tell, or does not get to tell, which rows have changed.
- There is one worker, and either answers are lost or replies are late: a version that was never seen is taken for a new one unless the
  server can be asked.
"""

import asyncio
import logging
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from shelflife.client import InProcessStore, Memory, Question, SqliteStore, StoreError
from shelflife.client.sending import Send
from shelflife.contract.versions import Versions
from shelflife.integrations.ed25519 import trust
from shelflife.server import endpoints, faces, feed, sql_log
from shelflife.server import log as server_log
from tests.client.agents import Clock
from tests.client.wires import KEY
from tests.histories.clues import Asked, Clues
from tests.histories.moves import Moves
from tests.histories.servers import ORIGIN, AtOnce, Servers
from tests.histories.shop import OPERATION, POLICY_OF, REQUESTS, reads, says
from tests.positions.histories import Broken

_QUIET_S = 4000.0
"""After so long no back-off, bound or split counts any more; and a key's word does not."""


_MOST_MOVES = 100
"""A history has fewer."""


class Setting(NamedTuple):
    """What a history is played with."""

    form: str = "compact"
    """`compact`, `full` as in the paper, or `mixed`: one agent in each."""

    conditional: bool = False
    has_feed: bool = False
    has_keys: bool = False
    discloses: str = ""
    """Nothing for names as they are; `counts` or `diffs` for aliases, with that."""

    has_file: bool = False
    """Whether the log is in a file."""

    keeps_file: bool = False
    """Whether the memory is."""

    worker_count: int = 2
    capacity: int | None = None
    most_evictions: int | None = None
    most_entries: int = 1024
    """Of the log: what is older is too old."""

    longest_account: int = 4096
    """In bytes. A reply, or an event, that has more to tell leaves it out, and the memory asks."""

    longest_answer: int = 1024 * 1024
    """If the answer is longer than this, the memory is told that it is too far back."""

    loses_answers: bool = True
    """By versions either answers get lost, or replies are late: without an order, nobody could deal with both."""

    has_flaky_store: bool = False
    splits: bool = False
    """Whether a worker may have a log of its own for a time. Then S is not promised: each is right about its own log."""

    answers_in_the_end: bool = True
    """Whether questions are answered once everything works. Without, replies to requests must do."""

    @property
    def is_by_versions(self):
        """Whether requests name no position. With a precondition they do."""
        return self.form == "full" and not self.conditional


class Pending:
    """Something that a memory does, and waits in the middle of."""

    def __init__(self, who, steps):
        self.who = who
        self.steps = steps
        self.step = None
        self.asked = None
        self.served = []


class Flaky:
    """A store that cannot be written for a time, or neither written nor read."""

    def __init__(self, store):
        self.inner = store
        self.fails = ""
        """Nothing, `write`, or `everything`."""

    def __getattr__(self, verb):
        is_failing = self.fails == "everything" or (self.fails and verb in ("write", "used"))
        return self._fail if is_failing and verb != "close" else getattr(self.inner, verb)

    def _fail(self, *arguments):
        raise StoreError("the store is out of order")


class _Faults(logging.Handler):
    """What is only logged, so that no request fails for it."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.found = []

    def emit(self, record):
        if record.exc_info:
            self.found.append(record.getMessage() + f": {record.exc_info[1]!r}")


class History(Moves):
    """One world, played move by move."""

    def __init__(self, setting, rules=None):
        self.setting = setting
        self.recall_count = 0
        self.event_counts = Counter()
        self.lines = []

    def play(self, moves):
        faults = _Faults()
        logger = logging.getLogger("shelflife.memory")
        with ExitStack() as ending:
            for module, bound, value in self._bounds():
                ending.enter_context(patch.object(module, bound, value))
            self.folder = Path(ending.enter_context(tempfile.TemporaryDirectory(dir=_fastest_folder())))
            logger.addHandler(faults)
            ending.callback(logger.removeHandler, faults)
            self._begin(ending)
            for move in moves:
                self.lines.append(f"{self.servers.time:3d} {move}")
                self.make(move)
                if faults.found:
                    raise Broken(f"R: {faults.found[0]}")
            self.heal()
            if faults.found:
                raise Broken(f"R: {faults.found[0]}")

    def _bounds(self):
        setting = self.setting
        return (
            (server_log, "MOST_ENTRIES", setting.most_entries),
            (sql_log, "MOST_ENTRIES", setting.most_entries),
            (faces, "_LONGEST_ACCOUNT", setting.longest_account),
            (feed, "_LONGEST_EVENT", setting.longest_account),
            (endpoints, "_LONGEST_ACCOUNT", setting.longest_answer),
        )

    def _begin(self, ending):
        self.loop = asyncio.new_event_loop()
        ending.callback(self.loop.close)
        self.loop.set_default_executor(AtOnce())
        self.clock = Clock()
        self.servers = Servers(self.setting, self.folder, self.loop, self.clock)
        ending.callback(self.servers.stop)
        self.clues, self.backup = Clues(), None
        self.pending, self.replies = [], []
        self.listener, self.last = None, None
        self.stores, self.memories = [None, None], [None, None]
        self.unwritten = [-1, -1]
        """Of which time there was evidence that an agent could not write down, for the other to know."""

        for who in range(2):
            self._open_memory(who)
            ending.callback(self.close_memory, who)

    def make(self, move):
        """One move, and whatever must hold after it."""
        self.servers.time += 1
        getattr(self, f"do_{move.verb}")(move)
        if self.servers.workers and any(worker.listeners for worker in self.servers.workers):
            self.servers.pump()
        self._check_recalls()

    # The memories

    def _open_memory(self, who):
        """An agent begins. Both share what is remembered."""
        if self.setting.keeps_file:
            inner = SqliteStore(self.folder / "memory.db")
        else:
            inner = InProcessStore() if self.stores[1 - who] is None else self.stores[1 - who].inner
        self.stores[who] = store = Flaky(inner)
        self.unwritten[who] = -1
        self.memories[who] = Memory(
            store,
            trust=trust({ORIGIN: [KEY.key]}) if self.setting.has_keys else None,
            capacity=self.setting.capacity,
            most_evictions=self.setting.most_evictions,
            on_event=self._tell_of,
            clock=self.clock,
        )

    def _tell_of(self, event):
        self.event_counts[type(event).__name__] += 1

    def close_memory(self, who):
        """An agent ends, whatever it is in the middle of."""
        for pending in [one for one in self.pending if one.who == who]:
            pending.steps.close()
            self.pending.remove(pending)
        if self.setting.keeps_file:
            self.stores[who].close()
        self.stores[who] = None

    def set_back(self):
        """The agents end, the file of the memory is replaced by its copy, and they begin again.

        One that went on would look at the file that is gone, until it writes.
        """
        for who in range(2):
            self.close_memory(who)
        for path in self.folder.glob("memory.db*"):
            path.unlink()
        shutil.copy(self.backup[0], self.folder / "memory.db")
        self.clues = self.backup[1].copy()
        for who in range(2):
            self._open_memory(who)

    @property
    def knowledge(self):
        return self.stores[0].inner.known(ORIGIN).knowledge

    # What is asked and said

    def begin(self, who, steps):
        """Something that a memory does, up to where it first waits; None when it does not."""
        pending = Pending(who, steps)
        return self._stepped(pending, lambda: next(steps))

    def _stepped(self, pending, step):
        try:
            pending.step = step()
        except StopIteration:
            if pending in self.pending:
                self.pending.remove(pending)
            return None
        pending.asked = Asked.of(pending.step, self.clues.known_since)
        pending.served = []
        if isinstance(pending.step, Send):
            carried = [(entry.type, entry.parameters) for entry in pending.step.carried]
            self.settle()
            self._check_found(pending.who, carried, pending.step.held.before)
        return pending

    def serve(self, pending, worker):
        """A worker replies to what something waits for."""
        step = pending.step
        if isinstance(step, Question):
            parts = urlsplit(step.url)
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            served = self.servers.serve(worker, step.method, path, step.headers, step.body or b"")
        else:
            served = self.served_send(worker, step)
            self.replies.append((step, pending.asked, served))
        pending.served.append(served)
        return served

    def advance(self, pending, served):
        """What is waited for has come, or will not. Tells whether something else is waited for."""
        self.note_delivery(pending.who, pending.asked, served)
        going_on = self._stepped(
            pending, lambda: pending.steps.send(None if served is None else served.reply)
        )
        self.settle()
        return going_on is not None

    def finish(self, pending, worker, loses=False):
        """Everything that it waits for comes at once, or questions get lost."""
        while pending is not None:
            is_lost = loses and isinstance(pending.step, Question)
            served = None if is_lost else self.serve(pending, worker)
            if not self.advance(pending, served):
                return

    def answering(self, who, worker, loses=False):
        """What answers a verb that blocks."""

        def ask(question):
            self.settle()
            if loses:
                self.note_delivery(who, None, None)
                return None
            pending = Pending(who, iter(()))
            pending.step, pending.asked = question, Asked.of(question, self.clues.known_since)
            served = self.serve(pending, worker)
            self.note_delivery(who, pending.asked, served)
            return served.reply

        return ask

    # What a reply does

    def note_delivery(self, who, asked, served):
        """A reply is about to be taken in, or that there is none."""
        self.settle()
        self.last = who, asked, served, self.knowledge, self._held()

    def settle(self):
        """The last reply has been taken in."""
        if self.last is None:
            return
        (who, asked, served, before, held), self.last = self.last, None
        after = self.knowledge
        if served is not None:
            has_keys, new_serial = self.setting.has_keys, self.servers.serial()
            clues = self.clues.copy() if self.stores[who].fails else self.clues
            clues.take_in(
                asked,
                served,
                before,
                after,
                has_keys=has_keys,
                has_known_versions=before.place.at is not None
                and self._versions(before) == self._versions_at(served.position),
                new_serial=new_serial,
            )
            if clues is not self.clues:
                self.unwritten[who] = max(self.unwritten[who], clues.evident_at)
            elif served.is_from_end and served.reply.status == 200 and asked.parts:
                self._check_parts(asked.parts, served, after)
        self._tell(served, after.place)
        left = self._held()
        for id, entry in held.items():
            if id not in left:
                self._check_departure(entry, before, after)

    def _held(self):
        """The entries that there are, by id."""
        return {entry.id: entry for entry in self.stores[0].inner.entries()}

    def _tell(self, served, place):
        said = "no reply"
        if served is not None:
            end = " from the end" if served.is_from_end else ""
            said = f"made at {served.made_at}{end} at {served.position} ({served.reply.status})"
        doubt = ", in doubt" if place.doubt else ""
        clues = f"evidence ({self.clues.why}) of {self.clues.evident_at}"
        self.lines.append(f"      {said}: the memory is at {place.base}{doubt}; {clues}")

    # The properties

    def _check_departure(self, entry, before, after):
        """It must not be true any more; or its grounds have changed, in the same log, on the way to where it is true again."""
        self.lines.append(f"      {entry.type} {entry.parameters} is gone")
        request = next((one for one in REQUESTS if entry.applies_to(one)), None)
        old, new = self._content(before), self._content(after)
        if request is None or self.setting.capacity is not None or old is None or new is None:
            return
        is_needed = any(
            says(one, request).get(entry.type) != entry.parameters for one in self.servers.with_any_code(new)
        )
        if not is_needed and before.generation == after.generation:
            policy = POLICY_OF[entry.type]
            is_needed = reads(old, request, policy) != reads(new, request, policy)
            if not is_needed and self._is_told_roughly:
                is_needed = self._has_table_moved(entry, before, after)
        if not is_needed:
            raise Broken(f"N: {entry.type} {entry.parameters} went for nothing")

    def _check_parts(self, parts, served, after):
        """What was asked about versions is known as the server has told it, or not at all."""
        told = self.servers.contents[served.position][1]
        now = {**told.table_versions, "rules": told.rules_version}
        known = {**after.versions.tables, "rules": after.versions.rules}
        for part in parts:
            if known.get(part) not in (None, now[part]):
                raise Broken(f"E: {part} is known as {known[part]}, and was told to be {now[part]}")

    @property
    def _is_told_roughly(self):
        """Whether the memory may have been told no more than which tables have moved."""
        if not self.setting.is_by_versions:
            return self.setting.discloses == "counts"
        # What has changed since a version is told only while the log has that, and only to whoever is answered.
        is_told = self.servers.is_whole and self.setting.most_entries > _MOST_MOVES
        return self.setting.discloses == "counts" or self.setting.loses_answers or not is_told

    def _has_table_moved(self, entry, before, after):
        old, new = self._versions(before), self._versions(after)
        moved = any(old.tables.get(table) != new.tables.get(table) for table in entry.grounds.tables)
        return moved or old.rules != new.rules

    def _versions(self, knowledge):
        return knowledge.versions if knowledge.place.at is None else self._versions_at(knowledge.place.at)

    def _versions_at(self, position):
        state = self.servers.contents[position][1]
        return Versions(state.table_versions, state.rules_version)

    def _content(self, knowledge):
        """What the server holds at the state that a memory knows; None when it knows none."""
        if knowledge.place.at is None and knowledge.versions.tables:
            return self.servers.content_at(knowledge.versions)
        if knowledge.place.at is None:
            return None
        if knowledge.place.at not in self.servers.contents:
            raise Broken(f"E: the memory is at {knowledge.place.at}, where no server was")
        return self.servers.contents[knowledge.place.at][0]

    def recalled(self, who, request):
        found = self.memories[who].recall(ORIGIN, OPERATION, request)
        self.recall_count += len(found)
        return [(entry.type, entry.parameters) for entry in found]

    def _check_recalls(self):
        for who in range(2):
            for request in REQUESTS:
                self.check_recall(who, request)

    def check_recall(self, who, request):
        found = self.recalled(who, request)
        self._check_found(who, found, request)
        return found

    def _check_found(self, who, found, request):
        """What is recalled for a request, or carried by it, is true as far as the memory can know."""
        if not found:
            return
        content = self._content(self.knowledge)
        expected = [says(one, request) for one in self.servers.with_any_code(content)]
        for type, parameters in found:
            if all(one.get(type) != parameters for one in expected):
                at = self.knowledge.place.at
                raise Broken(
                    f"E: for {request} {type} {parameters} is recalled at {at}, where it is {expected}"
                )
            last_true_at = self.servers.last_true_at(request, type, parameters)
            evident_at = max(self.clues.evident_at, self.unwritten[who])
            if last_true_at < evident_at and not self.setting.splits:
                raise Broken(
                    f"S: for {request} {type} {parameters} is recalled, and it is {self.servers.says_now(request)};"
                    f" there was evidence ({self.clues.why}) of {evident_at}"
                )

    def heal(self):
        """Everything works from now on, and nothing that was under way arrives."""
        self.lines.append("    all is well")
        self.servers.heal()
        self.servers.time += 1
        self.clock.now += _QUIET_S
        for store in self.stores:
            store.fails = ""
        for pending in self.pending:
            pending.steps.close()
        self.pending.clear()
        worker = self.servers.workers[-1]
        if not self.setting.answers_in_the_end:
            self._check_what_is_learned(worker, loses=True)
            return
        is_stuck, is_known = self._is_stuck(worker), self.knowledge.place.at is not None
        held = list(self._held().values())
        self.memories[0].refresh(ORIGIN, self.answering(0, worker))
        self.settle()
        position = self.memories[0].position(ORIGIN)
        if is_known and position != (None if is_stuck else self.servers.end):
            raise Broken(f"L: the memory is at {position}, and the server at {self.servers.end}")
        if is_stuck:
            self._check_recalls()
            self.memories[0].forget(ORIGIN)  # only a person can do that, and must
            self.clues = Clues(self.servers.serial())
            held = []
        self._check_what_is_kept(worker, held)
        self._check_what_is_learned(worker)

    def _is_stuck(self, worker):
        """Whether no key can lead the memory on: it has vouched for another log."""
        vouched = self.knowledge.vouched
        if vouched is None:
            return False
        return vouched.log != worker.provider.face(worker.state, self.servers.who).log_id

    def _check_what_is_kept(self, worker, held):
        """What was held and is true is there without any request."""
        for request in REQUESTS:
            self.memories[0].revalidate(ORIGIN, OPERATION, request, self.answering(0, worker))
            self.settle()
            found, now = self.check_recall(0, request), self.servers.says_now(request)
            for entry in held:
                is_true = entry.applies_to(request) and now.get(entry.type) == entry.parameters
                is_found = (entry.type, entry.parameters) in found or self.setting.capacity is not None
                if is_true and not is_found:
                    raise Broken(f"L: for {request} {entry.type} {entry.parameters} was held and is gone")

    def _check_what_is_learned(self, worker, loses=False):
        """After some requests of each kind, all that is true is recalled, and nothing else."""
        for _ in range(4 if loses else 2):
            for request in REQUESTS:
                self.finish(self.begin_call(0, request), worker, loses)
        for request in REQUESTS:
            found, now = self.check_recall(0, request), self.servers.says_now(request)
            if self.setting.is_by_versions:  # a deploy is not told: what an older code has given may stand
                is_all = {POLICY_OF[type] for type, _ in found} == {POLICY_OF[type] for type in now}
                is_right = True
            else:
                is_all, is_right = len(found) == len(now), all(now.get(type) == one for type, one in found)
            if not is_right or not (is_all or self.setting.capacity is not None):
                raise Broken(f"L: for {request} {found} is recalled in the end, and it is {now}")


def _fastest_folder():
    """Nobody here pulls the plug: what waits for a disk waits for nothing."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
