"""What a client takes from a response: the contract, or that there is none. Nothing here trusts the server."""

from collections.abc import Mapping, Sized
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract.errors import BadMessage, ContractError
from shelflife.contract.messages import RecoveryFeedback, Suggestion
from shelflife.contract.names import check_name, check_version, shown, split_node_id
from shelflife.contract.stamps import (
    RULES_HEADER,
    STATE_HEADER,
    TABLES_HEADER,
    table_versions_from_header,
    unquoted,
)

__all__ = ["Contract", "read_contract"]

_LARGEST_BODY = 4 * 1024 * 1024
_MOST_SUGGESTIONS = 64
_MOST_TABLES = 10_000
_MOST_READS = 1_000


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the server attached to a response."""

    suggestions: tuple[Suggestion, ...] = ()
    table_versions: dict[str, str] | None = None
    """Every loaded table and its version; None when the response does not say."""

    rules_version: str | None = None
    """The fingerprint of the rules; None when the response does not say."""

    state_tag: str | None = None
    """Names the state, where the stamps are in headers; the versions may be too many to be there."""

    def __bool__(self) -> bool:
        return bool(self.suggestions or self.state_tag) or self.table_versions is not None


class _Envelope(msgspec.Struct):
    recovery_feedback: RecoveryFeedback | UnsetType = UNSET
    table_versions: dict[str, str] | UnsetType = UNSET
    rules_version: str | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Envelope).decode


def read_contract(body: bytes, headers: Mapping[str, str]) -> Contract:
    """The contract of a response, an empty one when it has none; `BadMessage` when it has one that is malformed.

    `headers` are looked up by lower-case name; the body is the decoded one.
    """
    in_headers = _from_headers(headers)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if in_headers or not is_json or body.lstrip()[:1] != b"{":
        return in_headers
    if len(body) > _LARGEST_BODY:
        raise BadMessage(f"the response is larger than {_LARGEST_BODY} bytes")
    try:
        envelope = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"the contract of the response is malformed: {shown(str(error))}") from None
    suggestions = envelope.recovery_feedback.suggestions if envelope.recovery_feedback else ()
    contract = Contract(
        suggestions=suggestions,
        table_versions=None if envelope.table_versions is UNSET else envelope.table_versions,
        rules_version=envelope.rules_version or None,
    )
    _check(contract)
    return contract


def _from_headers(headers: Mapping[str, str]) -> Contract:
    tables = headers.get(TABLES_HEADER.lower())
    rules = headers.get(RULES_HEADER.lower())
    state = headers.get(STATE_HEADER.lower())
    contract = Contract(
        table_versions=None if tables is None else table_versions_from_header(tables),
        rules_version=None if rules is None else unquoted(rules),
        state_tag=None if state is None else unquoted(state),
    )
    _check(contract)
    return contract


def _check(contract: Contract) -> None:
    """Refuse what no honest server sends: it is never stored, shown or counted."""
    try:
        versions: dict[str, Any] = contract.table_versions or {}
        if len(versions) > _MOST_TABLES or len(contract.suggestions) > _MOST_SUGGESTIONS:
            raise BadMessage("the contract of the response is too large")
        for table, version in versions.items():
            check_name(table)
            check_version(version)
        if contract.rules_version is not None:
            check_version(contract.rules_version)
        for suggestion in contract.suggestions:
            _check_suggestion(suggestion)
    except ContractError as error:
        raise BadMessage(f"the contract of the response is malformed: {error}") from None


def _check_suggestion(suggestion: Suggestion) -> None:
    check_name(suggestion.type, "suggestion")
    members: list[Sized] = [suggestion.parameters, suggestion.tables or (), suggestion.rows or ()]
    members += [suggestion.rules or (), suggestion.when or {}, suggestion.unless or {}]
    if any(len(member) > _MOST_READS for member in members):
        raise BadMessage(f"the suggestion {suggestion.type} is too large")
    for table in suggestion.depends_on:
        check_name(table)
    for node in (*(suggestion.rows or ()), *(suggestion.rules or ())):
        check_name(split_node_id(node)[0])
