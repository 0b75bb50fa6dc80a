"""What a handler gives to a check: what policies see of it, and what that says of the request as the client has sent it.

Policies see what the handler goes on with: the values of a model, with its defaults, by their names on the wire. A model may read
what was sent in its own way: `"true"` as true, nothing as a default, one field by several names. So what a policy has read is turned
into conditions on the body, before a client is told of them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import msgspec

from shelflife.contract import same_json
from shelflife.contract.merging import merged
from shelflife.contract.names import shown
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.when import WHOLE_REQUEST, as_read, field_path, names_in, read_at
from shelflife.server.errors import MalformedRequest, ServerError, UsageError
from shelflife.server.models import (
    DICTIONARY,
    Reader,
    may_be_told,
    own_names,
    plain_fields,
    pydantic_model_of,
    seen_of,
)
from shelflife.server.operations import Operation
from shelflife.server.pins import Pin
from shelflife.server.reads import Request, with_objects
from shelflife.server.shapes import RAW, Model, Part, Shape

__all__ = ["Given", "SeenReaders", "at_first_sight"]

When = dict[str, Any]
Unless = dict[str, tuple[Any, ...]]

_FIRST_CHECKS = 256
"""At so many checks it is looked at what handlers give them, beside those that refuse: it may not be the body alone."""


_SCALARS = frozenset({int, bool})
"""What is seen just as it is, beside texts. A number with a fraction is seen as the client wrote it."""

_known_names: dict[type, dict[str, str] | None] = {}
"""What `own_names` gave, for as many classes as there are models in a large app: a dictionary is looked at sooner than a cache."""
_MOST_KNOWN = 256


def _as_sent() -> Reader:
    return DICTIONARY


class Given(msgspec.Struct, eq=False):
    """A request as a check is given it. It is a struct because most requests need no more of it than that it is made."""

    _request: Any
    _body: bytes | bytearray | None = None
    """What the client has sent; None where nobody has: the request is as it is given."""
    _asked_for: Callable[[], Reader | None] = _as_sent
    """Tells how the framework has read that for the handler; None when it may be in several ways."""
    _seen: Mapping[str, Any] | None = None
    _decoded: dict[str, Any] | None = None
    _verdict: tuple[Reader, Any] | tuple[None, None] | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """What policies see; an error when they cannot see it as fields."""
        seen = self._seen
        if seen is None:
            seen = self._seen = self._request if type(self._request) is dict else self._shown()
        return seen

    def _shown(self) -> Mapping[str, Any]:
        """What policies see of a request that has to be looked into."""
        request = self._request
        # What a model of pydantic shows does not depend on the route. So most checks need not find that.
        kind: Any = type(request)
        model = pydantic_model_of(kind)
        reader = self._asked_for() if model is None else None
        if reader is not None and reader.model.kind is kind:
            model = reader.model
        fields: Any = None if model is None else plain_fields(request, model)
        if fields is not None:
            return fields  # type: ignore[no-any-return]
        if request is None or isinstance(request, str | int | float | list):
            raise MalformedRequest(f"the request is {shown(request)}, and not an object of fields")
        if isinstance(request, Mapping):
            return request
        reader = reader or self._asked_for()
        fields = seen_of(request, self._sent(), None if reader is None else reader.model)
        if not isinstance(fields, Mapping):
            raise UsageError(f"a request is checked as an object of fields, not as {type(request).__name__}")
        return fields

    def without(self, was: Mapping[str, Any]) -> "Given":
        """The same as it was before a memory has put something into it."""
        body = None if self._body is None else msgspec.json.encode(merged(self._sent() or {}, was))
        again, reader = None, self.reader
        if body is not None and reader is not None and reader is not DICTIONARY:
            again = reader.read(msgspec.json.decode(body))
        return Given(merged(self.fields, was) if again is None else again, body, self._asked_for)

    @property
    def is_readable(self) -> bool:
        """Whether what was sent, if anything was, is an object: of a form or of nonsense nobody can say how its route reads objects."""
        return not self._body or self._sent() is not None

    @property
    def reader(self) -> Reader | None:
        """How the body is read to give this; None when it is not in the body alone."""
        return self._read_again()[0]

    def _read_again(self) -> tuple[Reader, Any] | tuple[None, None]:
        """How the body is read to give this, and what comes of that. It is read once, however many ask."""
        if self._verdict is None:
            self._verdict = None, None
            sent, reader = self._sent(), self._asked_for()
            kind = dict if isinstance(self._request, Mapping) else type(self._request)
            if sent is not None and reader is not None and reader.model.kind is kind:
                again = reader.read(sent)
                seen = again if kind is dict else seen_of(again, sent, reader.model)
                self._verdict = (reader, again) if _is_same(self.fields, seen) else (None, None)
        return self._verdict

    def said(
        self, when: When, unless: Unless, parameters: Mapping[str, Any], objects: Iterable[str] = ()
    ) -> tuple[When, Unless] | str:
        """What policies have read, as conditions on what was sent, or why it cannot be said.

        The fix has these parameters. The objects must be there for it to hold.
        """
        if self._body is None:
            return with_objects(when, unless, objects, self.fields)
        sent, request, reader = self._sent() or {}, self._request, self._asked_for()
        if reader is None:
            return "its handler may read a body in several ways, or only a part of it"
        if isinstance(request, Mapping) and reader.model.kind is dict:
            return _of_a_dictionary(request, sent, reader.read(sent), when, unless, objects)
        if reader.model.kind is not type(request):
            return "its handler makes something else of the body than its route says, and nobody knows what"
        known, again = self._read_again()
        if known is None:
            return "its handler has changed what was sent, or a model reads that otherwise each time"
        try:
            return _Said(again, sent, known.model).conditions(when, unless, parameters, objects)
        except ServerError as why:
            return str(why)

    def _sent(self) -> dict[str, Any] | None:
        """The object that is in the body."""
        if self._decoded is None and self._body:
            try:
                sent = msgspec.json.decode(self._body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return None
            is_carried = isinstance(sent, dict) and fault_in(sent, DEEPEST_VALUE) is None
            self._decoded = sent if is_carried else None
        return self._decoded


class _FirstSight(Request):
    """What policies see of a request at first: plain values as it holds them. Only when one asks for anything else is it looked into."""

    __slots__ = ("_held", "_names", "_pin", "_seen", "_whole")
    __init__ = object.__init__  # every check makes one: setting its fields takes less than a call
    _held: dict[str, Any]
    _names: Mapping[str, str]
    """What in it is a field: what a policy is written with is nearly always this very name. Others may be equal to it and mislead."""
    _whole: Any
    _pin: Pin
    _seen: Mapping[str, Any] | None
    _reads = None
    _path = WHOLE_REQUEST

    @property
    def _fields(self) -> Mapping[str, Any]:  # type: ignore[override]
        seen = self._seen
        if seen is None:
            seen = self._seen = Given(self._whole, self._pin.body, self._pin.asked_for).fields
        return seen

    def __getitem__(self, name: str) -> Any:
        try:
            if self._names[name] is name:
                value = self._held[name]
                if type(value) is str or type(value) in _SCALARS:
                    return value
        except (KeyError, TypeError):  # no field is called so, or it holds none
            pass
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of any request. It is written out once more because policies mostly call this: a call of its own would cost as much again."""
        try:
            if self._names[name] is name:
                value = self._held[name]
                if type(value) is str or type(value) in _SCALARS:
                    return value
        except (KeyError, TypeError):  # no field is called so, or it holds none
            pass
        return super().get(name, default)


_FirstSight.__name__ = Request.__name__


def at_first_sight(request: Any, pin: Pin) -> Request | None:
    """What policies see of a request that has it ready in a dictionary: one that is a dictionary, and most models of pydantic. None of
    any other."""
    kind: Any = type(request)
    try:
        names = _known_names[kind]
    except KeyError:
        names = _known_names[kind] = own_names(kind)
        if len(_known_names) > _MOST_KNOWN:
            _known_names.clear()
    if names is None:
        return Request(request) if kind is dict else None
    sight: _FirstSight = _FirstSight()
    sight._held, sight._names, sight._whole = request.__dict__, names, request
    sight._pin, sight._seen = pin, None
    return sight


class SeenReaders:
    """How the bodies of operations are read before they are checked, as far as checks have shown it."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        """The operations that have checked something else than what they read from the body."""
        self.looks_left = _FIRST_CHECKS
        """At so many checks more it is looked at what was given, though they refuse nothing."""

    def of(self, operation: Operation) -> Reader | None:
        """As its route says. None when a check was given what is not in the body alone: only the handler knows that."""
        return None if operation.name in self._made else operation.body

    def note(self, pin: Pin, given: Given) -> None:
        """A check was given this. Once that was something else than the body, it may be that again."""
        if not pin.shown.is_heard:
            return
        self.looks_left = max(0, self.looks_left - 1)
        operation = pin.find_operation()
        if operation is None or operation.name in self._made:
            return
        if given.reader is None and given.is_readable:
            self._made.add(operation.name)


def _of_a_dictionary(
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    read: Mapping[str, Any],
    when: When,
    unless: Unless,
    objects: Iterable[str],
) -> tuple[When, Unless] | str:
    """The same conditions, if what they are about is what was sent. A handler may have added something else.

    What is only in `read` is a null there: a policy cannot tell that from a field that was not sent.
    """
    for name, value in sent.items():
        if name not in fields or not _is_same(fields[name], value):
            return f"its handler has changed {shown(name)}, or a framework has"
    added = {name for name in fields.keys() - sent.keys() if name not in read or fields[name] is not None}
    for path in (*when, *unless, *objects):
        if added if path == WHOLE_REQUEST else names_in(path)[0] in added:
            return (
                f"it reads {shown(path) if path else 'all of the request'}, and its handler has added to that"
            )
    return with_objects(when, unless, objects, sent)


def _is_same(given: Any, sent: Any) -> bool:
    try:
        return same_json(given, sent)
    except Exception:  # noqa: BLE001 - what JSON cannot carry was not sent
        return False


class _Place(NamedTuple):
    """Where a client says what a policy has read."""

    said: When
    """What it has said there, and that it has said nothing in the places that are looked at before."""

    part: Part | None = None
    """How that is read; None when this is about something around it. Its names are those of the places."""

    used: str = ""
    """The place that counts; empty when nothing is said."""

    around: Mapping[str, None] = {}
    """What else must be so for this place to count: that the objects around it are not said by another name."""

    there: str = ""
    """Something else that must be there for it to count: it is in the same object, and nothing was said of this."""


class _Said(NamedTuple):
    """What a client has sent, beside the model that it is read as."""

    read: Any
    sent: dict[str, Any]
    model: Model

    def conditions(
        self, when: When, unless: Unless, parameters: Mapping[str, Any], objects: Iterable[str]
    ) -> tuple[When, Unless]:
        said: When = {}
        never: dict[str, list[Any]] = {}
        for place in (*map(self._place, when), *map(self._object, objects)):
            said |= {**place.around, **place.said}
            if place.there:
                never.setdefault(place.there, []).append(None)
        for path, values in unless.items():
            place = self._place(path)
            said |= place.around
            for value in values:
                others = _others(place, value, is_all=same_json(parameters, {path: value}))
                for other in others:
                    never.setdefault(other, []).append(value)
                said |= {} if others else place.said
                if place.there and not others:
                    never.setdefault(place.there, []).append(None)
        if WHOLE_REQUEST in said:
            return {WHOLE_REQUEST: said[WHOLE_REQUEST]}, {}
        return said, {path: tuple(values) for path, values in never.items() if path not in said}

    def _place(self, path: str) -> _Place:
        return self._below(self.read, self.model, WHOLE_REQUEST, names_in(path))

    def _object(self, path: str) -> _Place:
        """What says that an object is there. Where a model wants an object, whatever is sent is one."""
        place = self._below(self.read, self.model, WHOLE_REQUEST, names_in(path), is_entered=True)
        if place.part is None or not isinstance(place.said.get(place.used), dict):
            return place
        said, never = with_objects({}, {}, [place.used], self.sent)
        return place._replace(said=said, there=next(iter(never), ""))

    def _below(
        self,
        holder: Any,
        model: Model,
        above: str,
        steps: list[str],
        is_entered: bool = False,
        is_sure: bool = False,
    ) -> _Place:
        """The place of something in an object that the client has sent in the place `above`.

        With `is_entered` it is an object of which no more is to be said here than that it is there. With `is_sure` whatever is sent
        above is an object.
        """
        if model.reads == "unknown":
            raise ServerError(f"it reads {type(holder).__name__}, which is not plain")
        if not steps or model.reads == "together" or steps[0] in model.computed:
            return self._whole(holder, model, above)
        part = model.parts.get(steps[0])
        if part is None:
            if any(steps[0] in other.names for other in model.parts.values()):
                raise ServerError(f"{type(holder).__name__} knows {steps[0]} by another name")
            at = reduce(field_path, steps, above)
            raw = Part(at, (at,), Shape("nothing", is_only=True), None)
            said = read_at(self.sent, at)
            return _Place({at: said}, raw, "" if said is None else at) if model.is_open else _Place({})
        name, shape = f"{type(holder).__name__}.{part.name}", part.shape
        part = part._replace(names=tuple(field_path(above, name) for name in part.names))
        there = {at: read_at(self.sent, at) for at in part.names}
        if (fault := part.fault(list(there.values()))) or shape is None:
            raise ServerError(f"it reads {name}, which {fault}")
        used = next((at for at in there if there[at] is not None), "")
        held = getattr(holder, part.name, None)
        if not used and above and held is not None:  # a default, as long as the object is there
            said, never = ({}, [above]) if is_sure else with_objects({}, {}, [above], self.sent)
            if said:
                return _Place(said)
            there_too = next(iter(never))
            return _Place(dict.fromkeys(part.names), part if len(steps) == 1 else None, there=there_too)
        before = dict.fromkeys(part.names[: part.names.index(used)] if used else part.names)
        if shape.model is not None and isinstance(there.get(used), dict):
            if shape.model is not RAW and type(held) is not shape.model.kind:
                raise ServerError(f"it reads {name}, which may be a secret")
            if is_entered and len(steps) == 1 and not (shape.is_only or shape.may_vanish):
                return _Place({}, around=before, there=used)
            inner = self._below(held, shape.model, used, steps[1:], is_entered, not shape.may_vanish)
            return inner._replace(around={**before, **inner.around})
        if not may_be_told(held, shape):
            raise ServerError(f"it reads {name}, which may be a secret")
        return _Place(before | ({used: there[used]} if used else {}), part if len(steps) == 1 else None, used)

    def _whole(self, holder: Any, model: Model, above: str) -> _Place:
        """The place of all of an object."""
        sent = read_at(self.sent, above)
        if not model.is_whole_in(sent) or not may_be_told(holder, Shape(has_code=True, model=model)):
            raise ServerError(f"it reads all of {type(holder).__name__}, of which not all is plain")
        return _Place({above: sent})


def _others(place: _Place, value: Any, *, is_all: bool) -> list[str]:
    """Where a value must not be for the fix to hold, all others being as good; empty when that cannot be said.

    Where other things are read as the same value, the fix holds for all but one only if to set that is all it does.
    """
    if place.part is None or place.part.shape is None:
        return []
    part, shape = place.part, place.part.shape
    if value is None:
        return [place.used] if place.used and not shape.may_vanish else []
    is_only = shape.is_only and not part.may_be_left_at(value)
    is_there = any(same_json(said, as_read(value)) for said in place.said.values())
    return list(part.names) if (is_only or is_all) and not is_there else []
