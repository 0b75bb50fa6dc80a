"""What a server's words say, once they are checked. Nothing here trusts the server."""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from operator import is_
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.client.asking import Reply
from shelflife.contract.cells import size_of
from shelflife.contract.compact import CompactSuggestion, expanded
from shelflife.contract.errors import BadMessage, ContractError
from shelflife.contract.messages import ContractState, RulesChanges, Suggestion, TableChanges
from shelflife.contract.names import check_name, check_suggestion_names, check_versions, is_version, shown
from shelflife.contract.positions import AT_HEADER, Account, MovedRules, MovedTable, Named, Position
from shelflife.contract.stamps import (
    RULES_HEADER,
    STATE_HEADER,
    TABLES_HEADER,
    state_name,
    table_versions_from_header,
    unquoted,
)
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.versions import Versions

__all__ = [
    "JSON_TYPE",
    "OF_NO_STATE",
    "ChangesSince",
    "Contract",
    "checked_account",
    "decoded",
    "is_in_body",
    "read_account",
    "read_changes",
    "read_contract",
    "read_state",
]

_LARGEST_BODY = 4 * 1024 * 1024
_LARGEST_SUGGESTION = 16 * 1024
_MOST_SUGGESTIONS = 64
_MOST_TABLES = 10_000
_MOST_READS = 1_000
_MOST_CONDITIONS = 256
_MOST_CHANGES = 10_000
_LONGEST_NAME = 64
_LARGEST_STAMP_KEPT = 64 * 1024
_CACHED = ("GET", "HEAD")
_MALFORMED_POSITION = "the position is malformed"

_Message = TypeVar("_Message")
_Account = TypeVar("_Account", bound=Account)


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the server attached to a response."""

    suggestions: tuple[Suggestion, ...] = ()
    versions: Versions | None = None
    """Of every loaded table, and of the rules; None when the response does not say."""

    state_tag: str | None = None
    """Names the state, where the stamps are in headers; the versions may be too many to be there."""

    faults: tuple[str, ...] = ()
    """What is wrong with the suggestions that were left out, one sentence each. The stamps count all the same."""

    account: Account | None = None
    """What the response says of its position in the server's log, where it names one."""

    @property
    def state_name(self) -> str | None:
        """What the state of its stamps is called; None when it has none."""
        if self.state_tag is not None or self.versions is None:
            return self.state_tag
        return state_name(self.versions.tables, self.versions.rules)


class _Envelope(msgspec.Struct):
    recovery_feedback: msgspec.Raw = msgspec.Raw(b"")
    table_versions: msgspec.Raw = msgspec.Raw(b"")
    rules_version: str | UnsetType = UNSET
    at: msgspec.Raw = msgspec.Raw(b"")


class _Feedback(msgspec.Struct):
    suggestions: list[msgspec.Raw]


class _Form(msgspec.Struct):
    on: msgspec.Raw = msgspec.Raw(b"")


class _Where(msgspec.Struct):
    to: str


class ChangesSince(msgspec.Struct, frozen=True):
    """What has happened to each part that was asked about. The versions of all others, which an answer has too, are not even read."""

    tables: dict[str, TableChanges]
    rules: RulesChanges | UnsetType = UNSET


_decode_where = msgspec.json.Decoder(_Where).decode
_decode_whole = msgspec.json.Decoder(str | Account).decode
_NONE = Contract()
_STAMP_HEADERS = tuple(name.lower() for name in (TABLES_HEADER, RULES_HEADER, STATE_HEADER, AT_HEADER))
JSON_TYPE = re.compile(r"(?i)\s*(application/json|[^;]*\+json)\s*(;|\Z)")
"""The media type of one JSON value. Streams of them, and of events, are left alone."""

OF_NO_STATE = Contract()
"""That of a refusal with suggestions whose server does not say of which state they are."""


def read_contract(
    reply: Reply, request: Mapping[str, Any] | None = None, operation: str = ""
) -> Contract | None:
    """The contract of a response, None when it has none; `BadMessage` when its stamps cannot be read.

    What a response suggests of no state that could be known is left out: it is `OF_NO_STATE`.

    `request` has the fields of the request that it is the response to, and `operation` begins with its method.
    A suggestion that is malformed or too large is left out and told in `faults`: what the stamps say must not be lost with it.
    """
    headers = reply.headers
    in_headers = _from_headers(headers)
    is_json = _is_json(headers)
    if is_json and not reply.whole and in_headers is _NONE:
        raise BadMessage("the body of the response could not be read to its end")
    is_object = reply.body.startswith(b"{") or reply.body.lstrip()[:1] == b"{"
    if "content-type" not in headers and is_object and in_headers is _NONE:
        raise BadMessage("the reply does not say what its body is: give its headers with it")
    is_left_alone = in_headers is not _NONE and _is_left_alone(in_headers, operation)
    if not (is_json and reply.whole and is_object) or is_left_alone:
        return None if in_headers is _NONE else in_headers
    envelope = decoded(reply.body, _Envelope, "the contract of the response")
    account, versions = in_headers.account, None
    if account is None and envelope.at:
        account = _account_of(bytes(envelope.at))
    if envelope.table_versions:
        versions = _versions(_tables_in(bytes(envelope.table_versions)), envelope.rules_version or None)
    if account is None and versions is None:
        return OF_NO_STATE if envelope.recovery_feedback else None
    if not envelope.recovery_feedback:
        return Contract(versions=versions, account=account)
    is_compact = versions is None
    contract = _read_suggestions(envelope.recovery_feedback, (request or {}) if is_compact else None)
    return Contract(
        suggestions=contract.suggestions, versions=versions, faults=contract.faults, account=account
    )


def is_in_body(headers: Mapping[str, str], operation: str) -> bool:
    """Whether the contract of a response may be in its body. Else its headers, by lower-case name, say all there is of it."""
    try:
        return _is_json(headers) and not _is_left_alone(_from_headers(headers), operation)
    except BadMessage:
        return False


def _is_json(headers: Mapping[str, str]) -> bool:
    said = headers.get("content-type", "")
    return said == "application/json" or JSON_TYPE.match(said) is not None


def _is_left_alone(in_headers: Contract, operation: str) -> bool:
    """Whether the contract is in the headers alone: whatever the body has of it is of another server, or of the API itself."""
    if in_headers.state_tag is not None:
        return True
    return in_headers.account is not None and operation.partition(" ")[0] not in _CACHED


def _account_of(told: bytes) -> Account | None:
    """What a response says of its position; None when that names none, and so is a member of the API's own."""
    try:
        where = _decode_whole(told)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        _check_malformed_account(told)
        return None
    if isinstance(where, str):
        return _brief_account(where)
    return None if Position.from_text(where.to) is None else _within(where, len(told))


def _check_malformed_account(told: bytes) -> None:
    """`BadMessage` when it names a position all the same."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if Position.from_text(_decode_where(told).to) is not None:
            decoded(told, Account, "the position")


def _brief_account(text: str) -> Account | None:
    named = Named.from_header(text) if text else None
    if named is None or named.position is None:
        return None
    return Account(to=str(named.position), nonce=named.nonce)


def read_account(body: bytes) -> Account:
    """What a server says of where it is in its log: in a response, in an answer or in an event; `BadMessage` when it is malformed."""
    return checked_account(decoded(body, Account, "the position"), len(body))


def checked_account(account: _Account, byte_count: int) -> _Account:
    """The same with nothing in it that no honest server sends."""
    if Position.from_text(account.to) is None:
        raise BadMessage(_MALFORMED_POSITION)
    return _within(account, byte_count)


def _within(account: _Account, byte_count: int) -> _Account:
    """An account whose position is one, with nothing else in it that no honest server sends, and with lists that can be gone through.

    `byte_count` is how long it was: each change has a byte at least, so that most need not be counted.
    """
    if (account.since and not Named.is_base(account.since)) or len(account.state) > _LONGEST_NAME:
        raise BadMessage(_MALFORMED_POSITION)
    if account.moved is UNSET:
        return account
    moved = account.moved
    if len(moved.tables) > _MOST_TABLES or len(moved.policies) > _MOST_READS:
        raise BadMessage("too much has moved")
    for table in moved.tables:
        _checked_name(table)
    if byte_count <= _MOST_CHANGES:
        return account
    tables = {
        table: _moved_within(
            _with_few_columns(one), (one.added, one.removed, one.changed, one.affected_downstream)
        )
        for table, one in moved.tables.items()
    }
    rules = moved.rules and _moved_within(moved.rules, (moved.rules.added, moved.rules.removed))
    if rules is moved.rules and all(map(is_, tables.values(), moved.tables.values())):
        return account
    return msgspec.structs.replace(account, moved=msgspec.structs.replace(moved, tables=tables, rules=rules))


def _checked_name(table: str) -> None:
    try:
        check_name(table)
    except ContractError as error:
        raise BadMessage(f"the contract of the response is malformed: {error}") from None


_MovedOne = TypeVar("_MovedOne", MovedTable, MovedRules)


def _moved_within(moved: _MovedOne, lists: tuple[Any, ...]) -> _MovedOne:
    is_within = moved.known and sum(map(len, lists)) <= _MOST_CHANGES
    return moved if is_within else msgspec.structs.replace(moved, known=False)


def read_state(body: bytes) -> Versions:
    """The answer of `GET /contract/state`; `BadMessage` when it is malformed."""
    state = decoded(body, ContractState, "the state")
    return _versions(_checked(state.table_versions), state.rules_version or None)


def read_changes(body: bytes, since: Versions) -> ChangesSince:
    """What the answer of `GET /contract/changes` says about the versions that were asked about, and no more.

    A table is left out when it is not answered as asked, and is unknown when its lists are not all there or too long.
    """
    changes = decoded(body, ChangesSince, "the answer")
    tables = {
        table: _bounded(
            _with_few_columns(told), (told.added, told.removed, told.changed, told.affected_downstream or ())
        )
        for table, told in changes.tables.items()
        if told.since == since.tables.get(table) and is_version(told.version)
    }
    rules: RulesChanges | UnsetType = UNSET
    if changes.rules and changes.rules.since == since.rules and is_version(changes.rules.version):
        rules = _bounded(changes.rules, (changes.rules.added, changes.rules.removed))
    return ChangesSince(tables, rules)


def decoded(body: bytes, form: type[_Message], what: str) -> _Message:
    """A message of a server; `BadMessage` when it does not have this form, or is too large."""
    if len(body) > _LARGEST_BODY:
        raise BadMessage(f"{what} is larger than {_LARGEST_BODY} bytes")
    try:
        message: _Message = (_decoders.get(form) or _decoder_of(form)).decode(body)
        return message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"{what} is malformed: {shown(str(error))}") from None


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder_of(form: Any) -> msgspec.json.Decoder[Any]:
    """One for each form, for it takes as long to make as to decode with."""
    decoder = _decoders[form] = msgspec.json.Decoder(form)
    return decoder


def _from_headers(headers: Mapping[str, str]) -> Contract:
    """What the headers say; `_NONE` itself when that is nothing."""
    if headers.keys().isdisjoint(_STAMP_HEADERS):
        return _NONE
    tables, rules, state, at = (headers.get(name) for name in _STAMP_HEADERS)
    rules_version = None if rules is None else unquoted(rules) or None
    contract = Contract(
        versions=None if tables is None else _versions(_tables_of_header(tables), rules_version),
        state_tag=None if state is None else unquoted(state),
        account=_brief_account(at or ""),
    )
    return _NONE if contract == _NONE else contract


def _tables_in(told: bytes) -> Mapping[str, str]:
    """The versions of tables as they stand in a body. What a server says of them it mostly says again with its next response."""
    return _kept_tables_in(told) if len(told) <= _LARGEST_STAMP_KEPT else _kept_tables_in.__wrapped__(told)


@lru_cache(maxsize=16)
def _kept_tables_in(told: bytes) -> Mapping[str, str]:
    return _checked_as_before(decoded(told, dict[str, str], "the contract of the response"))


@lru_cache(maxsize=16)  # a header has some kilobytes at most
def _tables_of_header(value: str) -> Mapping[str, str]:
    return _checked_as_before(table_versions_from_header(value))


_checked_last: list[Mapping[str, str]] = [{}]


def _checked_as_before(tables: Mapping[str, str]) -> Mapping[str, str]:
    """Tables that are checked, but for what was checked with those of the response before: few move at a time."""
    (before,) = _checked_last
    _checked({table: version for table, version in tables.items() if before.get(table) != version})
    if len(tables) > _MOST_TABLES:
        raise BadMessage("there are too many tables")
    _checked_last[:] = [tables]
    return tables


def _versions(tables: Mapping[str, str], rules: str | None) -> Versions:
    """Of tables that were checked."""
    if rules is not None and not is_version(rules):
        _checked({}, rules)
    return Versions(tables, rules)


def _checked(tables: Mapping[str, str], rules: str | None = None) -> Mapping[str, str]:
    """Refuse what no honest server sends: it is never stored, shown or counted."""
    try:
        if len(tables) > _MOST_TABLES:
            raise BadMessage("there are too many tables")
        check_versions(tables, rules)
    except ContractError as error:
        raise BadMessage(f"the contract of the response is malformed: {error}") from None
    return tables


def _read_suggestions(feedback: msgspec.Raw, request: Mapping[str, Any] | None) -> Contract:
    """The suggestions that can be read, and what is wrong with the others."""
    try:
        each = decoded(bytes(feedback), _Feedback, "the feedback").suggestions
    except BadMessage as error:
        return Contract(faults=(str(error),))
    suggestions, faults = [], []
    for one in each[:_MOST_SUGGESTIONS]:
        try:
            suggestions.append(_read_suggestion(bytes(one), request))
        except ContractError as error:
            faults.append(f"a suggestion was left out: {error}")
    if len(each) > _MOST_SUGGESTIONS:
        faults.append(f"there are more than {_MOST_SUGGESTIONS} suggestions")
    return Contract(suggestions=tuple(suggestions), faults=tuple(faults))


def _read_suggestion(raw: bytes, request: Mapping[str, Any] | None) -> Suggestion:
    """One suggestion. It may be in the compact form where the request is given, and is when it has `on`."""
    if len(raw) > _LARGEST_SUGGESTION:
        raise BadMessage(f"it is larger than {_LARGEST_SUGGESTION} bytes")
    if request is not None and bytes(decoded(raw, _Form, "it").on):
        suggestion = expanded(decoded(raw, CompactSuggestion, "it"), request)
    else:
        suggestion = decoded(raw, Suggestion, "it")
    (tables, cells), rules = suggestion.grounds, suggestion.rules or ()
    check_suggestion_names(suggestion.type, (*tables, *rules))
    parameters, when, unless = suggestion.parameters, suggestion.when or {}, suggestion.unless or {}
    sizes = map(len, (parameters, when, unless, suggestion.rows or (), rules, tables))
    condition_count = len(when) + sum(map(len, unless.values()))
    if max(size_of(cells), *sizes) > _MOST_READS or condition_count > _MOST_CONDITIONS:
        raise BadMessage(f"the suggestion {suggestion.type} is too large")
    values = [parameters, *when.values(), *chain.from_iterable(unless.values())]
    if fault_in(values, DEEPEST_VALUE + 1):
        raise BadMessage(f"the suggestion {suggestion.type} is nested too deeply")
    of_rows = {*cells, *(row.partition(":")[0] for row in suggestion.rows or ())}
    strangers = of_rows - (cells.keys() & set(tables))
    if strangers:
        raise BadMessage(
            f"the suggestion {suggestion.type} rests on rows of {shown(min(strangers))}, which is not among its tables"
        )
    return suggestion


_WithColumns = TypeVar("_WithColumns", TableChanges, MovedTable)


def _with_few_columns(told: _WithColumns) -> _WithColumns:
    """What was told, without the columns that changed when they are too many: any may have then."""
    count = sum(map(len, (told.columns or {}).values()))
    return told if count <= _MOST_CHANGES else msgspec.structs.replace(told, columns={})


_Told = TypeVar("_Told", TableChanges, RulesChanges)


def _bounded(told: _Told, lists: tuple[Any, ...]) -> _Told:
    """What was told, or that it is unknown, when a list is missing or they are too long to be gone through."""
    if told.known and UNSET not in lists and sum(map(len, lists)) <= _MOST_CHANGES:
        return told
    return msgspec.structs.replace(told, known=False)
