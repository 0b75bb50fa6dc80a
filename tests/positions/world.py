"""The simulated servers: a log of changes, workers that lag behind it, and what they say when they are asked.

Whatever is needed to judge a memory afterwards is kept too: what was true at what time, and which reply was
made from the end of the log.
"""

from typing import NamedTuple

KEYS = ("a", "b")
ALL = "all"
"""What a client is shown, where no other is said."""


class Fix(NamedTuple):
    """What a server suggests for a key: it follows from the key's row and from the policy's code."""

    row: int
    code: int


class State(NamedTuple):
    """The content of a log at one position."""

    a: int = 0
    b: int = 0
    code: int = 0

    def fix(self, key):
        return Fix(getattr(self, key), self.code)


class Position(NamedTuple):
    """A number, and a check over the log and all that is in it up to there."""

    number: int
    check: str


class Asked(NamedTuple):
    """A request, a question about the position alone, or a question whether a suspect still holds."""

    kind: str
    """`request`, `question`, `suspect`, or `plain`: a request that names nothing and is told stamps alone."""

    key: str | None
    named: Position | None
    mark: str
    nonce: str
    carried: Fix | None = None
    """The fix that was recalled for it."""

    known_since: int = 0
    """Which acceptance was the last one when it was sent. No client knows this; it judges what came of it."""

    who: int = 0
    """Whose memory it comes from."""

    shown: str = ALL
    """What its client is shown of the log."""


class Said(NamedTuple):
    """A reply."""

    asked: Asked
    to: Position
    how: str
    """How this stands to what was named.

    - `there`: it is the same
    - `moved`: the log has gone on
    - `ahead`: the log ends before that
    - `foreign`: the log has something else there
    - `old`: it was compacted away
    - `unnamed`: nothing was named
    - `silent`: the worker says nothing of positions
    - `stamped`: it says nothing but which rows there are, by their versions
    """

    moved: frozenset[str]
    fix: Fix | None
    made_at: int
    log_id: str
    is_from_head: bool
    """Whether it was made from the end of the log that everybody uses; no client knows this."""

    change_counts: dict[str, int]
    """How often the grounds of each key's fix had changed; no client knows this either."""

    stamp: tuple[int, int] = (0, 0)
    """The versions of all rows: what a `stamped` reply says, and an answer to a question. Code has none."""

    @property
    def base(self):
        """What the reply repeats of its request."""
        return self.asked.named, self.asked.mark


class Log:
    """Changes, one after another. Whatever takes something back makes another log, maybe with the same id."""

    def __init__(self, id, declared, checks):
        self.id = id
        self.states = [declared]
        self.changed = []
        self.change_counts = [dict.fromkeys(KEYS, 0)]
        self.digests = [("declared", declared)]
        self.floor = 0
        self._checks = checks

    @property
    def head(self):
        return len(self.changed)

    def append(self, key, value):
        self.changed.append(key)
        self.states.append(self.states[-1]._replace(**{key: value}))
        counts = self.change_counts[-1]
        self.change_counts.append({each: counts[each] + (key in (each, "code")) for each in KEYS})
        digest = self._checks.setdefault((self.digests[-1], key, value), len(self._checks))
        self.digests.append(digest)

    def up_to(self, number, id):
        """Another log with the same beginning."""
        other = Log(id, self.states[0], self._checks)
        other.states = self.states[: number + 1]
        other.changed = self.changed[:number]
        other.change_counts = self.change_counts[: number + 1]
        other.digests = self.digests[: number + 1]
        other.floor = min(self.floor, number)
        return other

    def position(self, number, shown=ALL):
        """Clients that are shown different things are given different checks."""
        content = (shown, self.id, self.digests[number])
        return Position(number, f"c{self._checks.setdefault(content, len(self._checks)):05d}")


class Worker:
    """Has folded its log up to some position, and runs some version of the policy's code."""

    def __init__(self, log, code=0):
        self.code = code
        self.reaches_log = True
        self.start_on(log)

    def start_on(self, log):
        self.log = log
        self.at = log.head
        self.floor = log.floor

    def catch_up(self, to=None):
        """As far as it is told. What was compacted away can only be passed over."""
        if self.reaches_log:
            self.floor = self.log.floor
            self.at = self.log.head if to is None else max(min(to, self.log.head), self.floor)


class Servers:
    """One service: its log, its two workers, and its past.

    Of the rules, these are theirs: `questions_fold`, `old_code_is_silent`, `checks_by_disclosure`.
    """

    def __init__(self, rules, has_random_ids):
        self.rules = rules
        self.has_random_ids = has_random_ids
        self.time = 0
        self.serial = 0
        self._ended = {}
        self._checks = {}
        self._stamps = {}
        self.log = self._log_of(State())
        self.workers = [Worker(self.log), Worker(self.log)]
        self.is_whole = True
        """Whether the log has only ever grown."""

    def new_serial(self):
        self.serial += 1
        return self.serial

    # What was true

    @property
    def truth(self):
        return self.log.states[-1]

    def last_true_at(self, key, fix):
        """When this was last the fix for a key; 0 if it never was."""
        return self.time if self.truth.fix(key) == fix else self._ended.get((key, fix), 0)

    def _note_end(self):
        """To be called before the truth changes."""
        for key in KEYS:
            self._ended[key, self.truth.fix(key)] = self.time
        self.time += 1

    def stamp_at(self, position):
        """The versions of all rows at a position that was told."""
        return self._stamps.get(position)

    # What happens to the log

    def _log_of(self, declared):
        """Without a file the id follows from what is declared, unless ids are drawn at random."""
        id = f"drawn {self.new_serial()}" if self.has_random_ids else f"declared {tuple(declared)}"
        return Log(id, declared, self._checks)

    def reload(self, key, value):
        if getattr(self.truth, key) == value:
            return
        self._note_end()
        self.log.append(key, value)

    def deploy(self, worker):
        """A worker brings new code, and says so in the log. The other still runs the old one."""
        worker.catch_up()
        if worker.reaches_log:
            self._note_end()
            self.log.append("code", self.truth.code + 1)
            worker.code = self.truth.code
            worker.catch_up()

    def redeploy(self, worker):
        worker.code = self.truth.code
        worker.catch_up()

    def compact(self):
        self.log.floor = self.log.head

    def renew(self, number):
        """A restore: all workers stop, and the log goes back and has a new id."""
        self._start_on(self.log.up_to(number, f"renewed {self.new_serial()}"))

    def restart(self, a):
        """All workers stop. Without a file the log is back at what is declared; its changes are lost."""
        self._start_on(self._log_of(State(a=a, code=self.truth.code)))

    def _start_on(self, log):
        self._note_end()
        self.is_whole = False
        self.log = log
        for worker in self.workers:
            worker.code = self.truth.code
            worker.start_on(log)

    def split(self, value, is_fork):
        """The second worker goes on with a log of its own; or comes back, if it has one."""
        self.is_whole = False
        worker = self.workers[1]
        if worker.log is not self.log:
            worker.start_on(self.log)
            return
        if is_fork:
            own = self.log.up_to(self.log.head, self.log.id)
        else:
            own = Log(f"split {self.new_serial()}", State(code=self.truth.code), self._checks)
        for each in range(value):
            own.append("a", (own.states[-1].a + 1 + each) % 3)
        worker.start_on(own)

    def heal(self):
        """Everything works again."""
        for worker in self.workers:
            worker.reaches_log = True
            if worker.log is not self.log:
                worker.start_on(self.log)
            self.redeploy(worker)

    # What they say

    def answer(self, asked, worker):
        """What a worker replies. Asked a question, it folds first to the end of its log, or says nothing."""
        self.time += 1
        is_silent = False
        if asked.nonce and self.rules.questions_fold:
            is_silent = not worker.reaches_log
            worker.catch_up()
        if asked.named is not None and asked.named.number > worker.at:
            is_silent = is_silent or not worker.reaches_log
            worker.catch_up()
        log, state = worker.log, worker.log.states[worker.at]
        if worker.code != state.code and self.rules.old_code_is_silent:
            is_silent = True
        how = "silent" if is_silent else self._how(asked, worker)
        if asked.kind == "plain":
            how, is_silent = "stamped", False
        fix = None
        if asked.key is not None:
            fix = Fix(getattr(state, asked.key), worker.code)
            if fix == asked.carried:
                fix = None
        is_current = log is self.log and worker.at == log.head and worker.code == state.code
        to = log.position(worker.at, self._shown(asked))
        self._stamps[to] = state[:2]
        return Said(
            asked,
            to,
            how,
            frozenset(log.changed[asked.named.number : worker.at]) if how == "moved" else frozenset(),
            fix,
            self.time,
            log.id,
            is_current and not is_silent,
            log.change_counts[worker.at],
            state[:2],
        )

    def _shown(self, asked):
        return asked.shown if self.rules.checks_by_disclosure else ALL

    def _how(self, asked, worker):
        named, log = asked.named, worker.log
        if named is None:
            return "unnamed"
        if named == log.position(worker.at, self._shown(asked)):
            return "there"
        if named.number > worker.at:
            return "ahead"
        if named.number < worker.floor:
            return "old"
        return "moved" if named == log.position(named.number, self._shown(asked)) else "foreign"
