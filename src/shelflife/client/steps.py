"""What a response means: what has moved, what must be asked about it, what goes. Pure; a question is yielded to whoever asks it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeVar, assert_never
from urllib.parse import quote

import msgspec

from shelflife.client.asking import Question, Reply, Steps
from shelflife.client.entries import Knowledge, Root, Vouched
from shelflife.client.events import Reason
from shelflife.client.positions import Place, Verdict, judged, new_mark
from shelflife.client.reading import Contract, read_account, read_changes, read_state
from shelflife.client.strategies import POLICIES, RULES, STANDING, Change, Forgetting, Strategy
from shelflife.contract import BadMessage, RulesChanges, Suggestion, TableChanges
from shelflife.contract.positions import Account, Moved, MovedRules, MovedTable, Named
from shelflife.contract.versions import Versions
from shelflife.errors import ShelflifeError

__all__ = [
    "Answer",
    "Disposal",
    "Distrust",
    "MovedOn",
    "Movement",
    "New",
    "Returned",
    "Told",
    "Unmoved",
    "Untold",
    "Word",
    "Words",
    "answered",
    "body_of",
    "dispose",
    "follow",
    "is_current",
    "what_moved",
]

_LONGEST_QUERY = 6000
_MOST_QUESTIONS = 16
_MOST_SUPERSEDED = 8
"""A late response from further back than this is recognised only by asking the server."""

_MOST_MOVED = 1_000
"""Of so many parts the versions that have passed are on record: those that moved last."""

_STATE = ":state"
"""Stands for the name of the state among what has been superseded."""

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")
_OK = 200
_Answer = TypeVar("_Answer")


class Unmoved(msgspec.Struct, frozen=True):
    """The response is of the state that is known."""

    parts: Mapping[str, str | None] = {}


class New(msgspec.Struct, frozen=True):
    """The response names versions of what nothing was known of, so that nothing can have gone stale."""

    parts: Mapping[str, str | None]


class MovedOn(msgspec.Struct, frozen=True):
    """The response names other versions than are known."""

    parts: Mapping[str, str | None]
    """The tables that moved, and the `RULES`, with the version they had; None for one that was not known."""


class Untold(msgspec.Struct, frozen=True):
    """The state may be another one, and the response does not say which: only the server can."""

    parts: Mapping[str, str | None]


class Returned(msgspec.Struct, frozen=True):
    """A version is named that has passed. The response is late, or the server was rolled back: only the server can say which."""

    parts: Mapping[str, str | None]


Movement = Unmoved | New | MovedOn | Untold | Returned
"""How what a response says differs from what is known."""


def what_moved(
    knowledge: Knowledge, contract: Contract, *, is_doubted: bool = False, is_latest: bool = False
) -> Movement:
    """What moved between the knowledge and what a server said.

    Without stamps nothing has moved, and without a version of the rules the rules have not; a table that is not named is gone.

    Doubted is knowledge of which a response was seen that could not be dealt with: the server must be asked for its state.
    The latest is what it says when it is asked, and so never of the past.
    """
    said, known = contract.versions, knowledge.versions
    parts = {} if said is None or said == known else _moved_parts(known, said)
    if not is_latest:
        if is_doubted or (said is None and contract.state_tag not in (None, knowledge.state_tag)):
            return Untold(parts)
        for part in parts:
            if _version_of(part, said) in knowledge.superseded.get(part, ()):
                return Returned(parts)
    if not parts:
        return Unmoved()
    return MovedOn(parts) if any(parts.values()) else New(parts)


def _version_of(part: str, versions: Versions | None) -> str | None:
    if versions is None:
        return None
    return versions.rules if part == RULES else versions.tables.get(part)


def _moved_parts(known: Versions, said: Versions) -> dict[str, str | None]:
    old, new = known.tables, said.tables
    moved: dict[str, str | None] = {
        table: version for table, version in old.items() if new.get(table) != version
    }
    if len(old) != len(new) or not moved.keys() <= new.keys():
        moved |= dict.fromkeys(table for table in new if table not in old)
    if said.rules not in (None, known.rules):
        moved[RULES] = known.rules
    return moved


class Answer(msgspec.Struct, frozen=True):
    """What a server has answered when it was asked where its log is."""

    account: Account
    vouched: Vouched | None = None
    """Where a key must vouch for the state: for what it does, now."""

    vouched_before: Vouched | None = None
    """For what one did when the server was asked: it is held to that."""


class Told(msgspec.Struct, frozen=True):
    """What a server has said with a response, and when asked about it."""

    contract: Contract
    """What counts of the response."""

    movement: Movement
    """From what is known to the state, where that is known, else to the response."""

    state: Versions | None = None
    """What the server says that it is at, where it was asked."""

    changes: Mapping[str, TableChanges | RulesChanges] = {}
    """What it told of the parts that it was asked about."""

    late: frozenset[str] = frozenset()
    """The parts of which the response names a version that the server knows to have passed."""


class Distrust(ShelflifeError):
    """What a server says of its state is not to be believed: one sentence."""


class Word:
    """How to find out what has moved at one server: by its own word."""

    is_its_own = True

    def __init__(self, root: Root, strategy: Strategy, is_held: Callable[[str], bool]) -> None:
        """`is_held` tells whether anything is remembered that depends on a table."""
        self.root = root
        self._strategy = strategy
        self._is_held = is_held

    def judged(
        self, knowledge: Knowledge, sent: str | None, said: Account, answer: Answer | None
    ) -> tuple[Verdict, Place]:
        """What a position means that a reply, or an answer, names."""
        return judged(knowledge.place, sent, said)

    def question(self, named: Named) -> str:
        """Where to ask what has moved from a position."""
        return f"{self.root}/contract/changes?from={quote(named.base)}&nonce={named.nonce}"

    def answer(self, reply: Reply | None, named: Named, knowledge: Knowledge) -> Answer | None:
        """What the server has answered to that; None when it has not."""
        account = answered(reply, read_account)
        return None if account is None else Answer(account)

    def lacks(self, knowledge: Knowledge) -> str | None:
        """Why nothing of the server may be used before it is asked; None when it may."""
        return None

    def moved(
        self, knowledge: Knowledge, contract: Contract, *, is_doubted: bool, is_latest: bool
    ) -> Movement:
        """What a response says to have moved."""
        return what_moved(knowledge, contract, is_doubted=is_doubted, is_latest=is_latest)

    def finding_out(
        self, knowledge: Knowledge, contract: Contract, movement: Movement, *, is_latest: bool
    ) -> Steps[Told]:
        """What the server has said, with what it tells when asked about a movement; `Distrust` when that is not to be believed.

        Most strategies ask about a table only where something hangs on the answer: entries that are held, or suggestions of the response
        itself, which might be late. Where it answers that nothing has moved, it is asked whether it knows the version in the response from before.
        When the response is the latest, and the server has moved on while it is asked what has changed, the response counts as it stands.
        """
        state = contract.versions if is_latest else None
        match movement:
            case Untold() | Returned():
                state = answered((yield Question(f"{self.root}/contract/state")), read_state)
                if state is None:
                    return Told(contract, movement)
                movement = what_moved(knowledge, Contract(versions=state), is_latest=True)
            case Unmoved() | New() | MovedOn():
                pass
            case _:
                assert_never(movement)
        said = state or contract.versions
        since = self._worth_asking(movement, () if is_latest else contract.suggestions)
        changes = yield from self._changes(since)
        if is_latest:
            is_as_it_stands = all(
                change.version == _version_of(part, said) for part, change in changes.items()
            )
            return Told(contract, movement, state, changes if is_as_it_stands else {})
        denied = _denied(since, changes, said)
        if not denied:  # as mostly
            return Told(contract, movement, state, changes)
        # of these it is late where the server knows the version in the response from before
        passed = yield from self._changes(denied)
        late = frozenset(part for part, one in passed.items() if one.known and one.version == since[part])
        return Told(contract, movement, state, changes, late)

    def _worth_asking(self, movement: Movement, suggestions: Iterable[Suggestion]) -> dict[str, str]:
        """The parts that moved and that the strategy asks about, with the versions that are known."""
        depended_on = {RULES, *[table for one in suggestions for table in one.depends_on]}
        asks, is_held = self._strategy.asks, self._is_held
        return {
            part: old
            for part, old in movement.parts.items()
            if old is not None and asks(part, is_held=part in depended_on or is_held(part))
        }

    def _changes(self, since: Mapping[str, str]) -> Steps[dict[str, TableChanges | RulesChanges]]:
        """What happened to parts since these versions, as far as the server tells."""
        changes: dict[str, TableChanges | RulesChanges] = {}
        versions = Versions({part: old for part, old in since.items() if part != RULES}, since.get(RULES))
        for query in _queries(versions)[:_MOST_QUESTIONS]:
            reply = yield Question(f"{self.root}/contract/changes?{query}")
            told = answered(reply, lambda body: read_changes(body, versions))
            if told is not None:
                changes |= told.tables
                if told.rules:
                    changes[RULES] = told.rules
        return changes


def _denied(
    since: Mapping[str, str], changes: Mapping[str, TableChanges | RulesChanges], said: Versions | None
) -> dict[str, str]:
    """The parts that have not moved by the server's answer, with the version that the response names."""
    return {
        part: version
        for part, change in changes.items()
        if change.version == since[part] and (version := _version_of(part, said)) is not None
    }


class Words(Protocol):
    """Knows whose word counts where it is not the server's own."""

    def word_about(self, root: Root, clock: Callable[[], float]) -> Word | None:
        """Whose word counts about a server; None for its own."""

    def root_of(self, origin: Root, path: str) -> Root:
        """Where on an origin a contract lives, at least, for whose requests for this path somebody's word counts; else the origin."""


def _queries(since: Versions) -> list[str]:
    """The questions, as few as fit into URLs."""
    asked = [f"since={_quoted(table)}%3A{_quoted(version)}" for table, version in since.tables.items()]
    if since.rules is not None:
        asked.insert(0, f"rules={_quoted(since.rules)}")
    queries: list[str] = []
    for question in asked:
        if queries and len(queries[-1]) + len(question) < _LONGEST_QUERY:
            queries[-1] += f"&{question}"
        else:
            queries.append(question)
    return queries


def _quoted(text: str) -> str:
    return text if _UNRESERVED.fullmatch(text) else quote(text)


def body_of(reply: Reply | None) -> bytes | None:
    """What the server answered; None when it has no answer to give."""
    return reply.body if reply is not None and reply.status == _OK and reply.whole else None


def answered(reply: Reply | None, read: Callable[[bytes], _Answer]) -> _Answer | None:
    """What an answer says; None when there is none, or none that can be read."""
    body = body_of(reply)
    try:
        return None if body is None else read(body)
    except BadMessage:
        return None


class Disposal(msgspec.Struct):
    """What must be dropped, by tag, and why; and what is known afterwards."""

    knowledge: Knowledge
    dropped: dict[str, Reason] = {}
    kept: list[str] = []
    """Tables that moved, and of which something may still be good."""

    suspect: list[str] = []
    """By tag: what must be revalidated."""

    alert: Literal["stamp", "vector"] | None = None
    is_teaching: bool = True
    """Whether the suggestions of the response may be of the state that is known."""

    def add(self, forgetting: Forgetting) -> None:
        """What follows from the movement of one part, too."""
        self.dropped |= forgetting.tags
        self.kept += forgetting.kept
        self.suspect += forgetting.suspect
        self.alert = forgetting.alert or self.alert


def dispose(knowledge: Knowledge, told: Told, strategy: Strategy) -> Disposal:
    """What follows from a response.

    What the server says when asked counts. Where it could not be asked:

    - a version that was never seen is taken for a new one;
    - one that has passed is late or a rollback, and nobody can say which. What depends on its table goes, and nothing is learned of
      the table, but as suspects, until it has a version that was never seen, or the server answers;
    - a version that the server denies to have given counts as one that has passed;
    - nothing is learned from a response that might be older than one that was not dealt with.
    """
    said = told.state or told.contract.versions
    is_state_unknown = isinstance(told.movement, Untold) and told.state is None
    moved = knowledge.versions.tables if is_state_unknown and said is None else told.movement.parts
    after = _After(knowledge)
    disposal = Disposal(knowledge, is_teaching=not is_state_unknown)
    for part, old in moved.items():
        change = told.changes.get(part)
        new = _version_of(part, said)
        if change is not None:
            is_denied = change.version == old and part not in told.late
            now = None if is_denied else change.version
        else:  # where nobody can say at which version it is, it is at none
            now = None if told.state is None and after.has_passed(part, new) else new
        after.set(part, now, old, new)
        if old not in (None, now):
            disposal.add(strategy.forgets(part, None if now is None or change is None else _moved(change)))
    if is_state_unknown:
        disposal.dropped, disposal.kept = {STANDING: Reason.IN_DOUBT}, []
    disposal.knowledge = after.knowledge(told)
    return disposal


def follow(knowledge: Knowledge, moved: Moved, strategy: Strategy) -> Disposal:
    """What follows when a server tells what has moved from what is known."""
    disposal = Disposal(knowledge)
    parts: dict[str, Change] = {**moved.tables}
    if moved.rules is not None:
        parts[RULES] = moved.rules
    if moved.policies:
        parts[POLICIES] = moved.policies
    for part, change in parts.items():
        disposal.add(strategy.forgets(part, change))
    return disposal


def _moved(changes: TableChanges | RulesChanges) -> Change:
    """What has moved, in the words of a server that has positions."""
    if isinstance(changes, RulesChanges):
        return MovedRules(known=changes.known, added=changes.added or (), removed=changes.removed or ())
    return MovedTable(
        known=changes.known,
        added=changes.added or (),
        removed=changes.removed or (),
        changed=changes.changed or (),
        columns=changes.columns or {},
        affected_downstream=changes.affected_downstream or (),
    )


class _After:
    """What will be known, as it is being found out."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._before = knowledge
        self._tables = {**knowledge.versions.tables}
        self._rules = knowledge.versions.rules
        self._superseded = {**knowledge.superseded}
        self._is_unmoved = True

    def has_passed(self, part: str, version: str | None) -> bool:
        return version in self._superseded.get(part, ())

    def set(self, part: str, now: str | None, old: str | None, said: str | None) -> None:
        """A part that was at a version, and is said to be at another, is at this one."""
        self._is_unmoved &= now == old
        if part == RULES:
            self._rules = now
        else:
            self._tables.pop(part, None)
            if now is not None:
                self._tables[part] = now
        self._supersede(part, now, old, said)

    def _supersede(self, part: str, now: str | None, *passed: str | None) -> None:
        before = self._superseded.pop(part, ())
        versions = [v for v in dict.fromkeys((*before, *passed)) if v is not None and v != now]
        if versions:
            self._superseded[part] = tuple(versions[-_MOST_SUPERSEDED:])
        if len(self._superseded) > _MOST_MOVED:
            del self._superseded[next(iter(self._superseded))]

    def knowledge(self, told: Told) -> Knowledge:
        """All of it, with the name of the state only where that is certain: versions and name came together, or nothing moved."""
        before, contract = self._before, told.contract
        versions = Versions(self._tables, self._rules)
        tag = before.state_tag if self._is_unmoved else None
        if contract.state_tag is not None and not self.has_passed(_STATE, contract.state_tag):
            is_as_said = contract.versions is not None and contract.versions in (
                versions,
                (versions.tables, None),
            )
            is_asked = self._is_unmoved and told.state is not None and contract.versions is None
            tag = contract.state_tag if is_as_said or is_asked else tag
        if before.state_tag not in (None, tag):
            self._supersede(_STATE, tag, before.state_tag)
        place = before.place
        if place.at is None and not self._is_unmoved:
            # Two race here: this reply, and an answer that is under way and tells a position, maybe of a state from before. Only an answer to
            # what is asked from now on shows that it is of no earlier one.
            place = msgspec.structs.replace(place, mark=new_mark())
        return msgspec.structs.replace(
            before, place=place, versions=versions, state_tag=tag, superseded=self._superseded
        )


def is_current(suggestion: Suggestion, contract: Contract, known: Versions) -> bool:
    """Whether a suggestion is of the state that is known, and not of one that has passed."""
    said = contract.versions or Versions({})
    if said.rules not in (None, known.rules):
        return False
    versions = {dependency.table: dependency.version for dependency in suggestion.tables or ()}
    if not versions:
        versions = {table: said.tables.get(table, "") for table in suggestion.depends_on}
    return bool(versions) and all(known.tables.get(table) == version for table, version in versions.items())
