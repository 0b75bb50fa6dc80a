"""What to do about a response: pure functions from what is known and what was said to what must change."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from shelflife.client.entries import MOST_SUPERSEDED, RULES, STATE, Attested, Entry, Knowledge, lapsed
from shelflife.client.events import Reason
from shelflife.client.strategies import OnRules, OnTable, Strategy
from shelflife.contract import ContractState, Rule, RulesChanges, Suggestion, TableChanges, split_node_id
from shelflife.contract.reading import Contract

__all__ = [
    "Disposal",
    "Grown",
    "Movement",
    "Told",
    "compare_vectors",
    "dispose",
    "has_moved",
    "is_current",
    "is_outrun",
    "tags_of",
]

_MOST_MOVED = 1_000
"""Of so many tables the versions that have passed are on record: those that moved last."""

STANDING = "all"
"""The tag of every entry of an origin that is not suspect."""

SUSPECT = "suspect"
"""The tag of every entry that is, and its only one: what else moves does not concern it until it was checked."""

EVERYTHING = (STANDING, SUSPECT)
"""Every entry of an origin bears one of these."""


def tags_of(entry: Entry) -> tuple[str, ...]:
    """The tags by which an entry can be found when something it rests on changes."""
    if entry.is_suspect:
        return (SUSPECT,)
    tags = [STANDING, family_tag(entry.operation, entry.type)]
    tags += (table_tag(table) for table in entry.tables)
    if entry.rows is None:
        tags += (any_row_tag(table) for table in entry.tables)
    else:
        for node in entry.rows:
            table, key = split_node_id(node)
            tags.append(any_row_tag(table) if key is None else row_tag(node))
    tags += [ANY_RULE] if entry.rules is None else (rule_tag(rule) for rule in entry.rules)
    return tuple(dict.fromkeys(tags))


ANY_RULE = "rule"
"""The tag of an entry that may rest on any rule."""


def table_tag(table: str) -> str:
    """The tag of what depends on a table."""
    return f"table {table}"


def any_row_tag(table: str) -> str:
    """The tag of what read a table whole, or may have."""
    return f"rows {table}"


def row_tag(node: str) -> str:
    """The tag of what rests on a row."""
    return f"row {node}"


def rule_tag(rule: str) -> str:
    """The tag of what rests on a rule."""
    return f"rule {rule}"


def family_tag(operation: str, type: str) -> str:
    """The tag of fixes of one type for one operation."""
    return f"type {operation} {type}"


class Movement(msgspec.Struct, frozen=True):
    """How what a response says differs from what is known."""

    tables: dict[str, str | None]
    """The tables that moved, with the version they had; None for one that was not known."""

    has_rules_moved: bool
    is_untold: bool = False
    """The state is another one, but the response does not say how."""

    is_from_the_past: bool = False
    """A version is named that has passed: the response is late, or the server was rolled back."""

    def __bool__(self) -> bool:
        return bool(self.tables) or self.has_rules_moved or self.must_ask_state

    @property
    def must_ask_state(self) -> bool:
        """Whether only the server can say what its state is."""
        return self.is_untold or self.is_from_the_past


def has_moved(
    knowledge: Knowledge, contract: Contract | ContractState, *, is_doubted: bool = False
) -> Movement:
    """What moved between the knowledge and what was said; what was not said has not.

    Doubted is knowledge of which a response was seen that could not be dealt with: the server must be asked for its state.
    A `ContractState` is what the server says when it is asked, and so never of the past.
    """
    known, said = knowledge.table_versions, contract.table_versions
    tables = {} if said is None else _moved_tables(known, said)
    rules_version = contract.rules_version or None
    has_rules_moved = None not in (knowledge.rules_version, rules_version) and (
        knowledge.rules_version != rules_version
    )
    if isinstance(contract, ContractState):
        return Movement(tables, has_rules_moved)
    is_another_state = contract.state_tag not in (None, knowledge.state_tag)
    return Movement(
        tables,
        has_rules_moved,
        is_untold=is_doubted or (said is None and is_another_state),
        is_from_the_past=bool(knowledge.superseded)
        and (
            rules_version in knowledge.superseded.get(RULES, ())
            or any(said and said.get(table) in knowledge.superseded.get(table, ()) for table in tables)
        ),
    )


def _moved_tables(known: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str | None]:
    if known == said:
        return {}
    return {table: known.get(table) for table in {**known, **said} if known.get(table) != said.get(table)}


class Told(NamedTuple):
    """What a server has said with a response, and when asked about it."""

    contract: Contract
    movement: Movement
    """From what is known to the state, where that was asked for, else to the response."""

    state: ContractState | None = None
    tables: Mapping[str, TableChanges] = {}
    """What it told about tables, of those that it was asked about."""

    rules: RulesChanges | None = None
    late: frozenset[str] = frozenset()
    """The tables, and `RULES`, of which the response names a version that the server knows to have passed."""

    attested: Attested | None = None
    """Where the user trusts a key: what that vouches for, now. Then the state is its word."""

    checked: tuple[Entry, ...] = ()
    """The suspects that the response is the answer about."""


class Disposal(msgspec.Struct):
    """What must be dropped, by tag, and why; and what is known afterwards."""

    knowledge: Knowledge
    dropped: dict[str, Reason] = {}
    restamped: list[str] = []
    """Tables that moved, and of which something may still be good."""

    alert: Literal["stamp", "vector"] | None = None
    is_teaching: bool = True
    """Whether the suggestions of the response may be of the state that is known."""


def dispose(knowledge: Knowledge, told: Told, strategy: Strategy) -> Disposal:
    """What follows from a response.

    What the server says when asked counts. Where it could not be asked, a version that was never seen is taken for a new one. One that
    has passed is late or a rollback, and nobody can say which: what depends on its table goes, and nothing is learned of the table until it has a version
    that was never seen, or the server answers. Nor is anything learned from a response that might be older than one that was not dealt with. The same goes for a table of which the server denies the version that it gave in the response.
    """
    knowledge = msgspec.structs.replace(knowledge, attested=told.attested or knowledge.attested)
    disposal = Disposal(knowledge, {}, [])
    movement = told.movement
    if strategy.on_table is OnTable.NOTHING:
        disposal.knowledge = _vouched(_believed(knowledge, told.state or told.contract), knowledge, told)
        return disposal
    is_state_unknown = movement.is_untold and told.state is None
    said = told.state or told.contract
    versions_said = said.table_versions
    moved: Mapping[str, str | None] = movement.tables
    if is_state_unknown and versions_said is None:
        versions_said = {}
        moved = knowledge.table_versions
    after = _After(knowledge)
    for table, old in moved.items():
        _dispose_table(disposal, after, strategy, table, old, (versions_said or {}).get(table), told)
    _dispose_rules(disposal, after, strategy, said.rules_version or None, told)
    if is_state_unknown:
        disposal.dropped = {STANDING: Reason.TABLE_MOVED}
        disposal.restamped = []
        disposal.is_teaching = False
    disposal.knowledge = _vouched(after.knowledge(told.contract, told.state), knowledge, told)
    return disposal


def _vouched(after: Knowledge, before: Knowledge, told: Told) -> Knowledge:
    """What is known, without the word of a key where a memory that asks for none has moved on."""
    is_unmoved = (after.table_versions, after.rules_version) == (before.table_versions, before.rules_version)
    if told.attested is not None or is_unmoved:
        return after
    return msgspec.structs.replace(after, attested=lapsed(after.attested))


def _believed(knowledge: Knowledge, contract: Contract | ContractState) -> Knowledge:
    """For those who keep everything: what was said last."""
    versions = knowledge.table_versions if contract.table_versions is None else contract.table_versions
    return msgspec.structs.replace(
        knowledge, table_versions=versions, rules_version=contract.rules_version or knowledge.rules_version
    )


class _After:
    """What will be known, as it is being found out."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._before = knowledge
        self._versions = dict(knowledge.table_versions)
        self._superseded = dict(knowledge.superseded)
        self.rules_version = knowledge.rules_version

    def has_passed(self, of: str, version: str | None) -> bool:
        return version in self._superseded.get(of, ())

    def set_table(self, table: str, now: str | None, *passed: str | None) -> None:
        self._versions.pop(table, None)
        if now is not None:
            self._versions[table] = now
        self._supersede(table, now, passed)

    def set_rules(self, now: str | None, *passed: str | None) -> None:
        self.rules_version = now
        self._supersede(RULES, now, passed)

    def _supersede(self, of: str, now: str | None, passed: Iterable[str | None]) -> None:
        before = self._superseded.pop(of, ())
        versions = [v for v in dict.fromkeys((*before, *passed)) if v is not None and v != now]
        if versions:
            self._superseded[of] = tuple(versions[-MOST_SUPERSEDED:])
        if len(self._superseded) > _MOST_MOVED:
            del self._superseded[next(iter(self._superseded))]

    def knowledge(self, contract: Contract, state: ContractState | None) -> Knowledge:
        """All of it, with the name of the state only where that is certain: versions and name came together, or nothing moved."""
        before = self._before
        is_unmoved = (self._versions, self.rules_version) == (before.table_versions, before.rules_version)
        is_as_said = self._versions == contract.table_versions and contract.rules_version in (
            None,
            self.rules_version,
        )
        tag = before.state_tag if is_unmoved else None
        if contract.state_tag is not None and not self.has_passed(STATE, contract.state_tag):
            is_certain = is_as_said or (is_unmoved and state is not None and contract.table_versions is None)
            tag = contract.state_tag if is_certain else tag
        if before.state_tag not in (None, tag):
            self._supersede(STATE, tag, [before.state_tag])
        return Knowledge(
            self._versions, self.rules_version, tag, self._superseded, before.strategy, before.attested
        )


def _dispose_table(
    disposal: Disposal,
    after: _After,
    strategy: Strategy,
    table: str,
    old: str | None,
    new: str | None,
    told: Told,
) -> None:
    answer = told.tables.get(table)
    if answer is not None:
        is_denied = answer.version == old and table not in told.late
        now = None if is_denied else answer.version
    else:
        now = None if told.state is None and after.has_passed(table, new) else new
    after.set_table(table, now, old, new)
    if old in (None, now):
        return
    if now is None or answer is None or not answer.known:
        disposal.dropped[table_tag(table)] = Reason.TABLE_MOVED
        return
    keys = [*(answer.added or ()), *(answer.removed or ()), *(answer.changed or ())]
    if keys:
        disposal.dropped[any_row_tag(table)] = Reason.ROW_CHANGED
    disposal.dropped |= {row_tag(f"{table}:{key}"): Reason.ROW_CHANGED for key in keys}
    if strategy.is_following_graph:
        for node in answer.affected_downstream or ():
            disposal.dropped.setdefault(row_tag(node), Reason.DOWNSTREAM)
    disposal.restamped.append(table)


def _dispose_rules(
    disposal: Disposal, after: _After, strategy: Strategy, new: str | None, told: Told
) -> None:
    old = after.rules_version
    if new in (None, old):
        return
    if not strategy.on_rules.is_evicting:
        after.rules_version = new
        if told.movement.has_rules_moved and strategy.on_rules is OnRules.ALERT:
            disposal.alert = "stamp"
        return
    answer = told.rules
    if answer is not None:
        is_denied = answer.version == old and RULES not in told.late
        now = None if is_denied else answer.version
    else:
        now = None if told.state is None and after.has_passed(RULES, new) else new
    after.set_rules(now, old, new)
    if old in (None, now):
        return
    is_answered = now is not None and answer is not None and answer.known
    added, removed = ((answer.added or ()), (answer.removed or ())) if answer and is_answered else ((), ())
    if is_answered and not added and not removed:
        return
    disposal.alert = "stamp"
    if not is_answered:
        disposal.dropped[STANDING] = Reason.RULES_MOVED
    elif strategy.on_rules is OnRules.EVICT_TABLES:
        untied, tied = _tables_of(removed), _tables_of(added)
        disposal.dropped |= {table_tag(table): Reason.RULE_CHANGED for table in untied}
        disposal.restamped += sorted(tied - untied)
    else:
        disposal.dropped[ANY_RULE] = Reason.RULE_CHANGED
        disposal.dropped |= {rule_tag(rule.id): Reason.RULE_CHANGED for rule in (*added, *removed)}


def _tables_of(rules: Iterable[Rule]) -> set[str]:
    return {table for rule in rules for table in (rule.from_table, rule.to_table)}


def is_current(suggestion: Suggestion, contract: Contract, knowledge: Knowledge) -> bool:
    """Whether a suggestion is of the state that is known, and not of one that has passed."""
    if contract.rules_version not in (None, knowledge.rules_version):
        return False
    versions = {dependency.table: dependency.version for dependency in suggestion.tables or ()}
    if not versions:
        versions = {table: (contract.table_versions or {}).get(table, "") for table in suggestion.depends_on}
    return bool(versions) and all(
        knowledge.table_versions.get(table) == version for table, version in versions.items()
    )


def is_outrun(suggestion: Suggestion, contract: Contract, knowledge: Knowledge) -> bool:
    """Whether a suggestion is of the state that its response names, and that is not the one that is known."""
    named = Knowledge(contract.table_versions or {}, contract.rules_version)
    return is_current(suggestion, contract, named) and not is_current(suggestion, contract, knowledge)


class Grown(NamedTuple):
    """A remembered fix whose kind has come to depend on more tables."""

    entry: Entry
    """With the new vector; which rows of the new tables it rests on is not known."""

    new_tables: tuple[str, ...]


def compare_vectors(suggestion: Suggestion, family: Sequence[Entry]) -> tuple[list[Entry], list[Grown]]:
    """Of remembered fixes of its type: those that name a table it no longer depends on, and those whose vector grew."""
    vector = suggestion.depends_on
    shrunk = [entry for entry in family if set(entry.tables).difference(vector)]
    grown = [
        Grown(
            msgspec.structs.replace(entry, tables=vector, rows=None),
            tuple(table for table in dict.fromkeys(vector) if table not in entry.tables),
        )
        for entry in family
        if set(entry.tables) < set(vector)
    ]
    return shrunk, grown
