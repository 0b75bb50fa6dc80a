"""What a server's words say, once they are checked. Nothing here trusts the server."""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.client.asking import Reply
from shelflife.contract.compact import EPOCH_HEADER, CompactSuggestion, Moved, changes_of, expanded
from shelflife.contract.errors import BadMessage, ContractError
from shelflife.contract.messages import Changes, ContractState, RulesChanges, Suggestion, TableChanges
from shelflife.contract.names import check_name, check_nodes, check_versions, is_version, shown
from shelflife.contract.signed import KEY, MOST_ENDORSEMENTS, SignedStates, Statement
from shelflife.contract.stamps import (
    RULES_HEADER,
    STATE_HEADER,
    TABLES_HEADER,
    table_versions_from_header,
    unquoted,
)
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.versions import Versions

__all__ = [
    "Contract",
    "changes_in",
    "read_changes",
    "read_contract",
    "read_signed_states",
    "read_state",
    "read_statement",
]

_LARGEST_BODY = 4 * 1024 * 1024
_LARGEST_SUGGESTION = 16 * 1024
_MOST_SUGGESTIONS = 64
_MOST_TABLES = 10_000
_MOST_READS = 1_000
_MOST_CHANGES = 10_000
_MOST_STATEMENTS = 256
_SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}==")
_LINEAGE = re.compile(r"[0-9a-f]{32}")

_Message = TypeVar("_Message")


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the server attached to a response."""

    suggestions: tuple[Suggestion, ...] = ()
    versions: Versions | None = None
    """Of every loaded table, and of the rules; None when the response does not say."""

    state_tag: str | None = None
    """Names the state, where the stamps are in headers; the versions may be too many to be there."""

    faults: tuple[str, ...] = ()
    """What is wrong with the suggestions that were left out, one sentence each. The stamps count all the same."""

    changes: Changes | None = None
    """What has moved since the state that the request named, where the response tells."""


class _Envelope(msgspec.Struct):
    recovery_feedback: msgspec.Raw = msgspec.Raw(b"")
    table_versions: dict[str, str] | UnsetType = UNSET
    rules_version: str | UnsetType = UNSET
    epoch: msgspec.Raw = msgspec.Raw(b"")


class _Feedback(msgspec.Struct):
    suggestions: list[msgspec.Raw]


_NONE = Contract()


def read_contract(reply: Reply, named: Versions | None = None) -> Contract | None:
    """The contract of a response, None when it has none; `BadMessage` when its stamps cannot be read.

    `named` is the state that the request said it knew, without which a compact form says nothing.
    A suggestion that is malformed or too large is left out and told in `faults`: what the stamps say must not be lost with it.
    """
    body, headers = reply.body, reply.headers
    in_headers = _from_headers(headers)
    if named is not None and headers.get(EPOCH_HEADER.lower(), "").strip() == "1":
        return Contract(versions=named)
    if in_headers != _NONE:
        return in_headers
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if is_json and not reply.whole:
        raise BadMessage("the body of the response could not be read to its end")
    if not is_json or body.lstrip()[:1] != b"{":
        return None
    envelope = _decoded(body, _Envelope, "the contract of the response")
    if envelope.table_versions is UNSET and named is not None and bytes(envelope.epoch):
        return _from_compact(envelope, named)
    versions = _stamped(envelope.table_versions, envelope.rules_version)
    contract = msgspec.structs.replace(_read_suggestions(envelope.recovery_feedback), versions=versions)
    return None if contract == _NONE else contract


def _from_compact(envelope: _Envelope, named: Versions) -> Contract:
    account = bytes(envelope.epoch)
    changes = None
    if account != b"1":  # by which a server says that it is at the state that was named
        moved = _decoded(account, Moved, "the contract of the response")
        changes = _checked(changes_of(named, moved), named)
    versions = _versions(changes.table_versions, changes.rules_version or None) if changes else named
    contract = _read_suggestions(envelope.recovery_feedback, versions)
    return msgspec.structs.replace(contract, versions=versions, changes=changes)


def read_state(body: bytes) -> Versions:
    """The answer of `GET /contract/state`; `BadMessage` when it is malformed."""
    state = _decoded(body, ContractState, "the state")
    return _versions(state.table_versions, state.rules_version or None)


def read_changes(body: bytes, since: Versions) -> Changes:
    """What the answer of `GET /contract/changes` says about the versions that were asked about, and no more.

    A table is left out when it is not answered as asked, and is unknown when its lists are not all there or too long.
    """
    return _checked(_decoded(body, Changes, "the answer"), since)


def read_signed_states(body: bytes) -> SignedStates:
    """The answer of `GET /contract/signed`, of which nothing has been verified yet; `BadMessage` when it is malformed."""
    answer = _decoded(body, SignedStates, "the signed state")
    if not 0 < len(answer.statements) <= _MOST_STATEMENTS or len(answer.endorsements) > MOST_ENDORSEMENTS:
        raise BadMessage("the signed state has no statement, or too many")
    keys = [one.key for one in answer.statements]
    keys += (key for one in answer.endorsements for key in (one.key, one.by))
    signatures = (one.signature for each in (answer.statements, answer.endorsements) for one in each)
    if not all(map(KEY.fullmatch, keys)) or not all(map(_SIGNATURE.fullmatch, signatures)):
        raise BadMessage("the signed state has a key or a signature that is none")
    return answer


def read_statement(text: str) -> Statement:
    """What a text says that was signed; `BadMessage` when it is no statement."""
    statement = _decoded(text.encode(), Statement, "the statement")
    _versions(statement.table_versions, statement.rules_version)
    if not _LINEAGE.fullmatch(statement.lineage) or statement.sequence < 1:
        raise BadMessage("the statement has no lineage or no number")
    return statement


def changes_in(statement: Statement, before: Versions) -> Changes | None:
    """What has moved from the state before to that of a statement, as far as it tells."""
    if statement.moved is None:
        return None
    changes = _checked(changes_of(before, statement.moved), before)
    now = Versions(changes.table_versions, changes.rules_version or None)
    return changes if now == statement.versions else None


def _checked(changes: Changes, since: Versions) -> Changes:
    tables = {
        table: _bounded(told, (told.added, told.removed, told.changed, told.affected_downstream or ()))
        for table, told in changes.tables.items()
        if told.since == since.tables.get(table) and is_version(told.version)
    }
    rules: RulesChanges | UnsetType = UNSET
    if changes.rules and changes.rules.since == since.rules and is_version(changes.rules.version):
        rules = _bounded(changes.rules, (changes.rules.added, changes.rules.removed))
    return msgspec.structs.replace(changes, tables=tables, rules=rules)


def _decoded(body: bytes, form: type[_Message], what: str) -> _Message:
    if len(body) > _LARGEST_BODY:
        raise BadMessage(f"{what} is larger than {_LARGEST_BODY} bytes")
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"{what} is malformed: {shown(str(error))}") from None


def _from_headers(headers: Mapping[str, str]) -> Contract:
    names = (TABLES_HEADER, RULES_HEADER, STATE_HEADER)
    tables, rules, state = (headers.get(name.lower()) for name in names)
    return Contract(
        versions=_stamped(
            UNSET if tables is None else table_versions_from_header(tables),
            UNSET if rules is None else unquoted(rules),
        ),
        state_tag=None if state is None else unquoted(state),
    )


def _stamped(tables: dict[str, str] | UnsetType, rules: str | UnsetType) -> Versions | None:
    """What the stamps say; None when they do not name the tables."""
    return None if tables is UNSET else _versions(tables, rules or None)


def _versions(tables: Mapping[str, str], rules: str | None) -> Versions:
    """Refuse what no honest server sends: it is never stored, shown or counted."""
    try:
        if len(tables) > _MOST_TABLES:
            raise BadMessage("there are too many tables")
        check_versions(tables, rules)
    except ContractError as error:
        raise BadMessage(f"the contract of the response is malformed: {error}") from None
    return Versions(tables, rules)


def _read_suggestions(feedback: msgspec.Raw, named: Versions | None = None) -> Contract:
    """The suggestions that can be read, and what is wrong with the others."""
    if not bytes(feedback):
        return _NONE
    try:
        each = _decoded(bytes(feedback), _Feedback, "the feedback").suggestions
    except BadMessage as error:
        return Contract(faults=(str(error),))
    suggestions, faults = [], []
    for one in each[:_MOST_SUGGESTIONS]:
        try:
            suggestions.append(_read_suggestion(bytes(one), named))
        except ContractError as error:
            faults.append(f"a suggestion was left out: {error}")
    if len(each) > _MOST_SUGGESTIONS:
        faults.append(f"there are more than {_MOST_SUGGESTIONS} suggestions")
    return Contract(suggestions=tuple(suggestions), faults=tuple(faults))


def _read_suggestion(raw: bytes, named: Versions | None) -> Suggestion:
    """One suggestion; in the compact form where the state that it is of is named."""
    if len(raw) > _LARGEST_SUGGESTION:
        raise BadMessage(f"it is larger than {_LARGEST_SUGGESTION} bytes")
    if named is None:
        suggestion = _decoded(raw, Suggestion, "it")
    else:
        suggestion = expanded(_decoded(raw, CompactSuggestion, "it"), named.tables)
    check_name(suggestion.type, "suggestion")
    parameters, when, unless = suggestion.parameters, suggestion.when or {}, suggestion.unless or {}
    rows, rules, depends_on = suggestion.rows or (), suggestion.rules or (), suggestion.depends_on
    if max(map(len, (parameters, when, unless, rows, rules, depends_on))) > _MOST_READS:
        raise BadMessage(f"the suggestion {suggestion.type} is too large")
    values = [parameters, *when.values(), *chain.from_iterable(unless.values())]
    if fault_in(values, DEEPEST_VALUE + 1):
        raise BadMessage(f"the suggestion {suggestion.type} is nested too deeply")
    check_nodes((*depends_on, *rules))
    strangers = {row.partition(":")[0] for row in rows}.difference(depends_on)
    if strangers:
        raise BadMessage(
            f"the suggestion {suggestion.type} rests on rows of {shown(min(strangers))}, which is not among its tables"
        )
    return suggestion


_Told = TypeVar("_Told", TableChanges, RulesChanges)


def _bounded(told: _Told, lists: tuple[Any, ...]) -> _Told:
    """What was told, or that it is unknown, when a list is missing or they are too long to be gone through."""
    if told.known and UNSET not in lists and sum(map(len, lists)) <= _MOST_CHANGES:
        return told
    return msgspec.structs.replace(told, known=False)
