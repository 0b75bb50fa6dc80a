"""What a handler gives to a check: what policies see of it, and what that says of the request as the client has sent it.

Policies see what the handler goes on with: the values of a model, with its defaults, by their names on the wire. A model may read
what was sent in its own way: `"true"` as true, nothing as a default, one field by several names. So what a policy has read is turned
into conditions on the body, before a client is told of them.
"""

from collections.abc import Mapping
from decimal import Decimal
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from shelflife.contract import same_json
from shelflife.contract.merging import merged
from shelflife.contract.names import shown
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.when import WHOLE_REQUEST, as_read, field_path, read_at
from shelflife.server.errors import MalformedRequest, UsageError
from shelflife.server.models import (
    field_called,
    is_default,
    is_kept,
    member,
    read_as,
    seen_of,
    validators_of,
)

__all__ = ["Given"]

When = dict[str, Any]
Unless = dict[str, tuple[Any, ...]]

_OF_JSON = (str, int, float, bool, dict, list, tuple, type(None))


class Given:
    """A request as a check is given it."""

    __slots__ = ("_body", "_request", "fields")

    def __init__(self, request: Any, body: bytes | bytearray = b"") -> None:
        """`body` is what the client has sent, as far as that is known."""
        self._request = request
        self._body = body
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
        sent, kind = None if isinstance(self._request, Mapping) else self._sent(), type(self._request)
        again = None if sent is None else read_as(kind, sent)
        if sent is not None and again is not None and same_json(seen_of(again, sent), self.fields):
            before = merged(sent, was)
            if (again := read_as(kind, before)) is not None:
                return Given(again, msgspec.json.encode(before))
        return Given(merged(self.fields, was))

    def said(self, when: When, unless: Unless, parameters: Mapping[str, Any]) -> tuple[When, Unless]:
        """What policies have read, as conditions on what was sent. The fix that comes of it has these parameters."""
        sent = self._sent()
        if sent is not None and fault_in(sent, DEEPEST_VALUE) is not None:
            sent = None
        if isinstance(self._request, Mapping):
            return {path: _as_sent(value, path, sent) for path, value in when.items()}, unless
        again = None if sent is None else read_as(type(self._request), sent)
        if sent is None or again is None:  # it was made by hand, or from something else than the body
            sent, again = seen_of(self._request, None, only_set=True), self._request
        return _Said(self.fields, again, sent).conditions(when, unless, parameters)

    def _sent(self) -> dict[str, Any] | None:
        """The object that is in the body."""
        try:
            sent = msgspec.json.decode(self._body) if self._body else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return sent if isinstance(sent, dict) else None


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

    is_kept: bool = False
    """Whether no two things that may be there are read as the same."""


class _Said:
    """What a client has sent, beside what it was read as."""

    def __init__(self, fields: Mapping[str, Any], again: Any, sent: dict[str, Any]) -> None:
        self._fields = fields
        self._again = again
        self._read = seen_of(again, sent)
        self._sent = sent
        self._whole = _Place({WHOLE_REQUEST: as_read(sent)})

    def conditions(self, when: When, unless: Unless, parameters: Mapping[str, Any]) -> tuple[When, Unless]:
        said: When = {}
        never: dict[str, list[Any]] = {}
        for path, value in when.items():
            place = self._place(path)
            said |= {path: value} if place is None else place.spellings
        for path, values in unless.items():
            place = self._place(path)
            for value in values:
                others = [path] if place is None else self._others(place, path, value, parameters)
                for other in others:
                    never.setdefault(other, []).append(value)
                if place is not None and not others:
                    said |= place.spellings
        if WHOLE_REQUEST in said:
            return {WHOLE_REQUEST: said[WHOLE_REQUEST]}, {}
        return said, {path: tuple(values) for path, values in never.items() if path not in said}

    def _others(self, place: _Place, path: str, value: Any, parameters: Mapping[str, Any]) -> list[str]:
        """Where a value must not be for the fix to hold, all others being as good; empty when that cannot be said.

        Where other things are read as the same value, the fix holds for all but one only if it does no more than set that.
        """
        if value is None:
            return [place.used] if place.used else []
        is_alone = place.is_kept or same_json(parameters, {path: value})
        if WHOLE_REQUEST in place.spellings or not is_alone:
            return []
        is_there = any(same_json(said, as_read(value)) for said in place.spellings.values())
        return [] if is_there else list(place.spellings)

    def _place(self, path: str) -> _Place | None:
        """Where the client says what policies see under a path; None where the handler has put that there."""
        if not same_json(read_at(self._fields, path), read_at(self._read, path)):
            return None
        if path == WHOLE_REQUEST:
            return self._whole
        holder, above, at, is_shaped = self._again, "", "", False
        places: When = {}
        for step in (one.replace("~1", "/").replace("~0", "~") for one in path.split("/")):
            kind = type(holder)
            modes = validators_of(kind)
            if modes - {"after"}:
                return self._whole
            is_shaped = is_shaped or bool(modes)
            name, spellings = field_called(holder, step)
            at = field_path(at, step)
            named = {self._below(above, one): one for one in spellings}
            there = {place: read_at(self._sent, place) for place in named}
            used = next((place for place in there if there[place] is not None), "")
            is_silent = read_at(self._read, at) is None
            if used or is_silent:
                places.pop(above, None)  # some other reading says that the object is there
            places |= there
            if not used:
                is_said = is_silent or is_default(holder, name)
                return _Place(places, "", at == path and is_kept(kind, name)) if is_said else self._whole
            holder, above = member(holder, name), used
            if hasattr(holder, "get_secret_value"):
                return None  # nobody is to be told of it
            if not all(isinstance(one, str) for one in named[used]):
                return _Place(places)
        if is_shaped and not same_json(read_at(self._read, path), places[used]):
            return self._whole
        return _Place(places, used, is_kept(kind, name))

    def _below(self, above: str, spelling: tuple[Any, ...]) -> str:
        for name in takewhile(lambda one: isinstance(one, str), spelling):
            above = field_path(above, name)
        return above
