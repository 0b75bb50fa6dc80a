"""The compact form of a suggestion, for a client that names a position: without what follows from the rest of it, or from its request."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract.cells import Cells, Columns, rows_of_cells
from shelflife.contract.errors import BadMessage
from shelflife.contract.messages import Suggestion
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.when import read_at

__all__ = ["CompactSuggestion", "compacted", "expanded"]

_LONGEST_GROUNDS = 16 * 1024
"""As in the full form, where they are part of what may be so large."""

_OF_REQUEST, _OF_PARAMETERS, _RULES = "=", "~", ">"
_MARKS = (_OF_REQUEST, _OF_PARAMETERS, _RULES)
_LITERAL = ":"
_POLICY_LENGTH = 3
_CHECK_LENGTH = 4
_IN_URLS = bytes.maketrans(b"+/", b"-_")

_Told = str | tuple[str, ...] | None
"""Columns, or relations. One alone stands for itself."""

_encode = msgspec.json.Encoder(order="sorted").encode


class CompactSuggestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cacheable suggestion in short."""

    type: str
    parameters: dict[str, Any]
    on: dict[str, dict[str, _Told]]
    """Its cells and its rules, by table.

    A key `=field` stands for the value of that field of the request, and `~field` for that of a parameter. A key that begins like one of these
    itself, or with a colon, has a colon before it. The empty key stands for the set of keys, and with null for the whole table. Under `>` are
    the relations of the rules that leave the table.
    """

    by: str = ""
    """The policy that gave it, in three characters, and four over the values of the request under which the fix holds."""

    when: tuple[str, ...] = ()
    """More fields of the request under whose values the fix holds, beside those that `on` refers to."""

    unless: dict[str, tuple[Any, ...]] | UnsetType = UNSET
    """Absent it stands for the parameters that are not fields of `when`, and empty for none at all."""


def compacted(suggestion: Suggestion, by: str) -> CompactSuggestion | Suggestion:
    """A suggestion by a policy, for a client that names positions. One that does not say what it rests on stays as it is."""
    (tables, cells), when, unless = suggestion.grounds, suggestion.when or {}, suggestion.unless or {}
    if not cells or suggestion.when is UNSET or cells.keys() != {*tables}:
        return suggestion
    short = {
        value: _OF_PARAMETERS + field for field, value in _texts(suggestion.parameters, shorter=True).items()
    }
    short |= {value: _OF_REQUEST + field for field, value in _texts(when).items()}
    on: dict[str, dict[str, _Told]] = {
        table: {"": None}
        if rows is None
        else {short.get(key) or _literal(key): _few(read) for key, read in rows.items()}
        for table, rows in cells.items()
    }
    for rule in suggestion.rules or ():
        table, _, relation = rule.partition(":")
        told = on.setdefault(table, {})
        told[_RULES] = _few((*_many(told.get(_RULES, ())), relation))
    referred = {key[1:] for told in on.values() for key in told if key.startswith(_OF_REQUEST)}
    is_implied = _encode(unless) == _encode(_not_yet(suggestion.parameters, when))
    return CompactSuggestion(
        type=suggestion.type,
        parameters=suggestion.parameters,
        on=on,
        by=by + _check(when),
        when=tuple(field for field in when if field not in referred),
        unless=UNSET if is_implied else unless,
    )


def expanded(suggestion: CompactSuggestion | Suggestion, request: Mapping[str, Any]) -> Suggestion:
    """The suggestion as the full form has it, for the request that it was the answer to; without versions, which its client need not know.

    `BadMessage` when it is for another request, or rests on what is not there.
    """
    if isinstance(suggestion, Suggestion):
        return suggestion
    if fault_in(dict(request), DEEPEST_VALUE, is_strict=True) is not None:
        raise BadMessage(
            f"the suggestion {suggestion.type} is for another request: JSON cannot carry this one"
        )
    referred = (key[1:] for told in suggestion.on.values() for key in told if key.startswith(_OF_REQUEST))
    when = {field: read_at(request, field) for field in dict.fromkeys((*referred, *suggestion.when))}
    if _check(when) != suggestion.by[_POLICY_LENGTH:]:
        raise BadMessage(f"the suggestion {suggestion.type} is for other values than the request has")
    cells: Cells = {}
    for table, told in suggestion.on.items():
        rows = {
            _written_out(key, when, suggestion): _columns(read) for key, read in told.items() if key != _RULES
        }
        if rows:
            cells[table] = None if rows.get("", ()) is None else rows
    if sum(len(key) for rows in cells.values() for key in rows or ()) > _LONGEST_GROUNDS:
        raise BadMessage(f"the suggestion {suggestion.type} rests on too much")
    rules = tuple(
        f"{table}:{relation}"
        for table, told in suggestion.on.items()
        for relation in _many(told.get(_RULES, ()))
    )
    unless = suggestion.unless
    if unless is UNSET:
        unless = _not_yet(suggestion.parameters, when)
    return Suggestion(
        type=suggestion.type,
        parameters=suggestion.parameters,
        cache_hint="cacheable",
        table=next(reversed(cells), UNSET),
        rows=rows_of_cells(cells) or UNSET,
        cells=cells or UNSET,
        rules=rules or UNSET,
        by=suggestion.by[:_POLICY_LENGTH],
        when=when,
        unless=unless or UNSET,
    )


def _written_out(key: str, when: Mapping[str, Any], suggestion: CompactSuggestion) -> str:
    if key.startswith(_LITERAL):
        return key[1:]
    if not key.startswith((_OF_REQUEST, _OF_PARAMETERS)):
        return key
    value = (when if key.startswith(_OF_REQUEST) else suggestion.parameters).get(key[1:])
    if not isinstance(value, str) or not value:
        raise BadMessage(f"the suggestion {suggestion.type} rests on what is not there")
    return value


def _literal(key: str) -> str:
    return _LITERAL + key if key.startswith((_LITERAL, *_MARKS)) else key


def _few(names: Columns) -> _Told:
    return names[0] if names is not None and len(names) == 1 else names


def _many(told: _Told) -> tuple[str, ...]:
    return (told,) if isinstance(told, str) else told or ()


def _columns(told: _Told) -> Columns:
    return None if told is None else _many(told)


def _check(when: Mapping[str, Any]) -> str:
    """Tells the values of a request from others."""
    import binascii  # as in `preconditions`
    import hashlib  # as in `stamps`

    digest = hashlib.sha256(_encode(dict(when))).digest()
    return binascii.b2a_base64(digest).translate(_IN_URLS)[:_CHECK_LENGTH].decode()


def _texts(fields: Mapping[str, Any], *, shorter: bool = False) -> dict[str, str]:
    """The fields whose values may be keys; or those by whose names they are shorter to write."""
    texts = {field: value for field, value in fields.items() if isinstance(value, str) and value}
    return {field: value for field, value in texts.items() if not shorter or len(field) < len(value)}


def _not_yet(parameters: Mapping[str, Any], when: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What a policy that asks for these values has mostly looked at beside `when`: that the request does not have them yet."""
    return {name: (value,) for name, value in parameters.items() if name not in when}
