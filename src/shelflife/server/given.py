"""What a handler gives to a check: what policies see of it, and what that says of the request as the client has sent it.

Policies see what the handler goes on with: the values of a model, with its defaults, by their names on the wire. A model may read
what was sent in its own way: `"true"` as true, nothing as a default, one field by several names. So what a policy has read is turned
into conditions on the body, before a client is told of them.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from shelflife.contract import same_json
from shelflife.contract.merging import merged
from shelflife.contract.names import shown
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.when import WHOLE_REQUEST, as_read, field_path, holds, read_at
from shelflife.server.errors import MalformedRequest, ServerError, UsageError
from shelflife.server.models import Field, nulled, read_as, reading_of, seen_of

__all__ = ["Given"]

When = dict[str, Any]
Unless = dict[str, tuple[Any, ...]]

_MOST_NULLS = 64
_OF_JSON = (str, int, float, bool, dict, list, tuple, type(None))


class Given:
    """A request as a check is given it."""

    __slots__ = ("_asked_for", "_body", "_request", "fields")

    def __init__(
        self,
        request: Any,
        body: bytes | bytearray | None = None,
        asked_for: Callable[[], type | None] = lambda: dict,
    ) -> None:
        """`body` is what the client has sent; None where nobody has: the request is as it is given.

        `asked_for` tells what the handler has the body read as: a model, or a dictionary as it is; None when it is something else.
        """
        self._request = request
        self._body = body
        self._asked_for = asked_for
        self.fields: Mapping[str, Any] = request
        """What policies see."""
        if type(request) is dict:
            return
        if request is None or isinstance(request, str | int | float | list):
            raise MalformedRequest(f"the request is {shown(request)}, and not an object of fields")
        if not isinstance(request, Mapping):
            self.fields = seen_of(request, self._sent())
        if not isinstance(self.fields, Mapping):
            raise UsageError(f"a request is checked as an object of fields, not as {type(request).__name__}")

    def without(self, was: Mapping[str, Any]) -> "Given":
        """The same as it was before a memory has put something into it."""
        body = None if self._body is None else msgspec.json.encode(merged(self._sent() or {}, was))
        again = (
            None
            if body is None or self.kind in (None, dict)
            else read_as(type(self._request), msgspec.json.decode(body))
        )
        return Given(merged(self.fields, was) if again is None else again, body, self._asked_for)

    @property
    def kind(self) -> type | None:
        """What the body is read as to give this: a model, or a dictionary; None when it is not in the body alone."""
        sent, kind, asked_for = self._sent(), type(self._request), self._asked_for()
        if sent is None or asked_for not in (dict, kind):
            return None
        try:
            if isinstance(self._request, Mapping):
                fields = {
                    name: _as_sent(value, field_path("", name), sent) for name, value in self.fields.items()
                }
                return dict if same_json(as_read(fields), as_read(sent)) else None
            again = read_as(kind, sent)
            return kind if again is not None and same_json(seen_of(again, sent), self.fields) else None
        except Exception:  # noqa: BLE001 - whatever a handler has put there, that is not in the body
            return None

    def said(self, when: When, unless: Unless, parameters: Mapping[str, Any]) -> tuple[When, Unless] | str:
        """What policies have read, as conditions on what was sent, or why it cannot be said. The fix has these parameters."""
        sent, request, asked_for = self._sent(), self._request, self._asked_for()
        if asked_for is None or (asked_for not in (dict, type(request)) and not isinstance(request, Mapping)):
            return "its handler may read a body in several ways, or only a part of it"
        if isinstance(request, Mapping):
            if self._body is None:
                return when, unless
            if asked_for is not dict:
                return (
                    "its handler makes a dictionary of a model, and nobody can say what was sent for a field"
                )
            return _of_a_dictionary(request, sent or {}, when, unless)
        again = None if sent is None else read_as(type(request), sent)
        if self._body is None:
            sent, again = seen_of(request, None, only_set=True), request
        elif sent is None or self.kind is None:
            return "its handler has changed what was sent, or a model reads that otherwise each time"
        try:
            return _Said(self.fields, again, seen_of(again, sent), sent).conditions(when, unless, parameters)
        except ServerError as why:
            return str(why)

    def has(self, when: When) -> bool:
        """Whether the client has sent what a condition says. Else that is about what the handler has put there."""
        return self._body is None or holds(when, self._sent() or {})

    def _sent(self) -> dict[str, Any] | None:
        """The object that is in the body."""
        try:
            sent = msgspec.json.decode(self._body) if self._body else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        is_carried = isinstance(sent, dict) and fault_in(sent, DEEPEST_VALUE) is None
        return sent if is_carried else None


def _of_a_dictionary(
    fields: Mapping[str, Any], sent: Mapping[str, Any], when: When, unless: Unless
) -> tuple[When, Unless]:
    """Conditions on what was sent. What the handler has put there itself counts with its value, also where it is only compared."""
    said = {path: _as_sent(value, path, sent) for path, value in when.items()}
    never: Unless = {}
    for path, values in unless.items():
        here = _as_sent(read_at(fields, path), path, sent)
        if same_json(here, read_at(sent, path)):
            never[path] = values
        else:
            said[path] = here
    return said, never


def _as_sent(value: Any, path: str, sent: Mapping[str, Any] | None) -> Any:
    """What a field of a dictionary was sent as: a framework may have read a number or a date."""
    said = None if sent is None else read_at(sent, path)
    is_number = isinstance(value, float | Decimal) and type(said) in (int, float) and float(value) == said
    return said if is_number or (isinstance(said, str) and not isinstance(value, _OF_JSON)) else value


class _Place(NamedTuple):
    """Where a client says a field."""

    spellings: When
    """Every place where it may say it, with what is there. The whole request where it may rest on any of it."""

    used: str = ""
    """The one that counts; empty when nothing is said."""

    field: Field | None = None
    """How it is read; None when this is about something around it."""


class _Said(NamedTuple):
    """What a client has sent, beside what it was read as."""

    fields: Mapping[str, Any]
    """What policies see."""

    again: Any
    """What was sent, as the model reads it."""

    read: Mapping[str, Any]
    """What policies would see of that."""

    sent: dict[str, Any]

    def conditions(self, when: When, unless: Unless, parameters: Mapping[str, Any]) -> tuple[When, Unless]:
        said: When = {at: value for path in when for at, value in self._place(path).spellings.items()}
        never: dict[str, list[Any]] = {}
        for path, values in unless.items():
            place = self._place(path)
            for value in values:
                others = _others(place, path, value, parameters)
                for other in others:
                    never.setdefault(other, []).append(value)
                said |= {} if others else place.spellings
        if WHOLE_REQUEST in said:
            return {WHOLE_REQUEST: said[WHOLE_REQUEST]}, {}
        return said, {path: tuple(values) for path, values in never.items() if path not in said}

    def _place(self, path: str) -> _Place:
        """Where the client says what policies see under a path."""
        seen, kind = read_at(self.read, path), self.again.__class__
        if not same_json(read_at(self.fields, path), seen):  # the handler has put it there
            return _Place({path: read_at(self.fields, path)})
        steps = [one.replace("~1", "/").replace("~0", "~") for one in path.split("/") if path]
        place = self._below(self.again, "", steps) or _Place({WHOLE_REQUEST: as_read(self.sent)})
        tops = {one.partition("/")[0] for one in place.spellings} - {WHOLE_REQUEST}
        if not tops and "Secret" in str(reading_of(kind).fields):
            raise ServerError("it rests on all of a request that holds a secret")
        for count, other in enumerate(nulled(self.again, self.sent, tops)):
            if count == _MOST_NULLS:
                raise ServerError("it rests on more than anybody can try with nulls")
            again = read_as(kind, other)
            if again is not None and not same_json(read_at(seen_of(again, other), path), seen):
                raise ServerError(f"to {kind.__name__} a null is something else than nothing")
        return place

    def _below(self, holder: Any, above: str, steps: list[str]) -> _Place | None:
        """Where the client says a field of a model; None when that cannot be told from the rest of the model."""
        field = reading_of(holder.__class__).by_itself(steps[0]) if steps else None
        if field is None:
            return None
        held = getattr(holder, field.name, None)
        there = {at: read_at(self.sent, at) for at in (field_path(above, one) for one in field.spellings)}
        used = next((at for at in there if there[at] is not None), "")
        inner = self._below(held, used, steps[1:]) if used and field.schema["type"] == "model" else None
        if inner is not None:
            there.pop(used)
            return inner._replace(spellings=there | inner.spellings)
        if why := field.fault(is_sent=bool(used)):
            raise ServerError(f"it reads {field.name}, which {why}")
        if above and not used and held is not None:
            return None  # a default, as long as the model is there
        return _Place(there, used, field if len(steps) == 1 else None)


def _others(place: _Place, path: str, value: Any, parameters: Mapping[str, Any]) -> list[str]:
    """Where a value must not be for the fix to hold, all others being as good; empty when that cannot be said.

    Where other things are read as the same value, the fix holds for all but one only if it does no more than set that.
    """
    is_only = place.field is not None and place.field.is_only(value)
    if value is None:
        return [place.used] if place.used and is_only else []
    if WHOLE_REQUEST in place.spellings or not (is_only or same_json(parameters, {path: value})):
        return []
    is_there = any(same_json(said, as_read(value)) for said in place.spellings.values())
    return [] if is_there else list(place.spellings)
