"""What a memory asks a server about a movement. It says what to fetch; whoever drives it does the waiting."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from shelflife.client.decisions import Movement, Told, has_moved
from shelflife.client.entries import RULES, Knowledge
from shelflife.client.strategies import OnRules, OnTable, Strategy
from shelflife.contract import BadMessage, ContractState, RulesChanges, TableChanges
from shelflife.contract.reading import Contract, read_changes, read_state

__all__ = ["AsyncFetcher", "Fetched", "Fetcher", "asking"]

_LONGEST_QUERY = 6000
_MOST_QUESTIONS = 16

_Answer = TypeVar("_Answer")


class Fetched(NamedTuple):
    """The answer to a question that a memory asks a server."""

    status: int
    body: bytes


Fetcher = Callable[[str], Fetched | None]
"""Gets a URL with GET; None when that fails. Must not follow a redirect to another origin."""

AsyncFetcher = Callable[[str], Awaitable[Fetched | None]]


def asking(
    origin: str,
    knowledge: Knowledge,
    contract: Contract,
    strategy: Strategy,
    movement: Movement,
    *,
    is_held: Callable[[str], bool],
    state: ContractState | None = None,
) -> Generator[str, Fetched | None, Told]:
    """What the server has said, with what it tells when asked about a movement.

    It is asked about a table only where something hangs on the answer: entries that are held, or suggestions of the response itself,
    which might be late. Where the server answers that nothing has moved, it is asked whether it knows the version in the response from before.
    A `state` is what the response itself says when it is the answer to a question, and so not late: should the server have moved on while it is asked
    what has changed, the response counts as it stands.
    """
    if strategy.on_table is OnTable.NOTHING:
        return Told(contract, movement)
    is_latest = state is not None
    if movement.must_ask_state:
        state = _answer((yield f"{origin}/contract/state"), read_state)
        if state is None:
            return Told(contract, movement)
        movement = has_moved(knowledge, state)
    since: dict[str, str] = {}
    if strategy.on_table is OnTable.EVICT_ROWS:
        suggested = {table for suggestion in contract.suggestions for table in suggestion.depends_on}
        since = {
            table: old
            for table, old in movement.tables.items()
            if old is not None and ((table in suggested and not is_latest) or is_held(table))
        }
    is_asking_rules = strategy.on_rules in (OnRules.EVICT_TABLES, OnRules.EVICT_RULES)
    rules_since = knowledge.rules_version if movement.has_rules_moved and is_asking_rules else None
    tables, rules = _already_told(contract, since, rules_since)
    more_tables, more_rules = yield from _changes(
        origin,
        {table: old for table, old in since.items() if table not in tables},
        None if rules else rules_since,
    )
    tables, rules = {**tables, **more_tables}, rules or more_rules
    said = state or contract
    if is_latest:
        is_of_another = any(
            told.version != (said.table_versions or {}).get(table) for table, told in tables.items()
        )
        if is_of_another or (rules and rules.version != said.rules_version):
            return Told(contract, movement, state)
        return Told(contract, movement, state, tables, rules)
    denied = {
        table: version
        for table, version in (said.table_versions or {}).items()
        if table in tables and tables[table].version == since[table]
    }
    denied_rules = (said.rules_version or None) if rules and rules.version == rules_since else None
    passed, passed_rules = yield from _changes(origin, denied, denied_rules)
    late = {table for table, told in passed.items() if told.known and told.version == since[table]}
    if passed_rules and passed_rules.known and passed_rules.version == rules_since:
        late.add(RULES)
    return Told(contract, movement, state, tables, rules, frozenset(late))


def _already_told(
    contract: Contract, since: Mapping[str, str], rules_since: str | None
) -> tuple[dict[str, TableChanges], RulesChanges | None]:
    """What the response itself tells of the changes since these versions."""
    if contract.changes is None:
        return {}, None
    tables = {
        table: told
        for table, told in contract.changes.tables.items()
        if table in since and told.since == since[table]
    }
    rules = contract.changes.rules or None
    return tables, rules if rules is not None and rules.since == rules_since else None


def _changes(
    origin: str, since: Mapping[str, str], rules_since: str | None
) -> Generator[str, Fetched | None, tuple[dict[str, TableChanges], RulesChanges | None]]:
    """What happened to tables and rules since these versions, as far as the server tells."""
    tables: dict[str, TableChanges] = {}
    rules = None
    for query in islice(_queries(since, rules_since), _MOST_QUESTIONS):
        changes = _answer(
            (yield f"{origin}/contract/changes?{query}"), lambda body: read_changes(body, since, rules_since)
        )
        if changes is not None:
            tables |= changes.tables
            rules = changes.rules or rules
    return tables, rules


def _queries(since: Mapping[str, str], rules_since: str | None) -> Iterator[str]:
    """The questions, as few as fit into URLs."""
    asked = [f"since={quote(f'{table}:{version}')}" for table, version in since.items()]
    if rules_since is not None:
        asked.insert(0, f"rules={quote(rules_since)}")
    query = ""
    for question in asked:
        if query and len(query) + len(question) >= _LONGEST_QUERY:
            yield query
            query = ""
        query += f"&{question}" if query else question
    if query:
        yield query


def _answer(fetched: Fetched | None, read: Callable[[bytes], _Answer]) -> _Answer | None:
    """What the server answered; None when it has no answer to give."""
    if fetched is None or fetched.status != 200:
        return None
    try:
        return read(fetched.body)
    except BadMessage:
        return None
