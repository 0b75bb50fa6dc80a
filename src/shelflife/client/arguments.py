"""The arguments of a tool: which it takes, what it would make of others, and how a function is called with them."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Self, get_type_hints

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry
from shelflife.client.guard import Guard
from shelflife.contract.values import is_carried, same_json

__all__ = ["GuardOfTool", "Signed", "Takes", "Validated", "given_of", "hidden_in", "only_checked"]

Validated = Callable[[dict[str, Any], Collection[str]], Fields]
"""What a tool is to be given for the arguments of these names, among all that it is given. Raises where they are not valid."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_RECEIVERS = ("self", "cls")


class Takes(msgspec.Struct, frozen=True):
    """Which arguments a tool takes."""

    names: frozenset[str] | None = None
    """Only these are ever set; None for any."""

    defaults: Fields = MappingProxyType({})
    """What it takes those for that are not given. Only what JSON can carry is looked at."""

    never: frozenset[str] = frozenset()
    """These are not set, whatever else is: the object that a method is of."""

    validated: Validated | None = None
    """What is done to the arguments that a model gives; None where that is nothing, or not known."""

    judged_by: str = ""
    """Who has judged the arguments as the model gave them, such as a human. Nothing is written into them then."""

    @classmethod
    def from_schema(
        cls, schema: Mapping[str, Any] | None, validated: Validated | None = None, judged_by: str = ""
    ) -> Self:
        """As the JSON Schema of its arguments says, which is what a model is shown."""
        properties = (schema or {}).get("properties")
        if not isinstance(properties, Mapping):
            return cls(validated=validated, judged_by=judged_by)
        is_open = bool((schema or {}).get("additionalProperties"))
        defaults = {
            name: of["default"]
            for name, of in properties.items()
            if isinstance(of, Mapping) and "default" in of
        }
        names = None if is_open else frozenset(properties)
        return cls(names, defaults, validated=validated, judged_by=judged_by)

    def filled(self, arguments: Fields) -> dict[str, Any]:
        """Arguments with the defaults of those that are not given."""
        missing = {name: value for name, value in self.defaults.items() if name not in arguments}
        return {name: value for name, value in missing.items() if is_carried("", {name: value})} | {
            **arguments
        }


class GuardOfTool(msgspec.Struct, frozen=True):
    """Allows nothing that a tool does not take: it would fail, where without a memory it would not. Nor anything past whoever judges its
    arguments."""

    guard: Guard
    takes: Takes
    arguments: Fields
    """What the tool was called with."""

    request: Fields
    """The same with its defaults."""

    def refusal(self, entry: Entry) -> str | None:
        if self.takes.judged_by:
            return f"the arguments were judged as they are, by {self.takes.judged_by}"
        names, never = self.takes.names, self.takes.never
        strangers = entry.parameters.keys() & never if names is None else entry.parameters.keys() - names
        if strangers:
            return f"{min(strangers)[:64]!a} is not among the arguments of the tool"
        return self.guard.refusal(entry)

    def objection(self, entry: Entry, outcome: Fields) -> str | None:
        if self.takes.validated is not None:
            try:
                self.takes.validated(given_of(outcome, self.arguments, self.request), entry.parameters)
            except Exception:  # noqa: BLE001 - whatever a validator raises, the tool would not run
                return f"the tool does not take what it makes of {min(entry.parameters)[:64]!a}"
        return self.guard.objection(entry, outcome)


class _Fix(msgspec.Struct):
    parameters: dict[str, Any]
    when: dict[str, Any] | list[str] = {}
    on: dict[str, dict[str, Any]] = {}

    @property
    def fields(self) -> set[str]:
        """Of the request: those that it sets, and those that it has looked at, in either form."""
        referred = (key[1:] for told in self.on.values() for key in told if key.startswith("="))
        return {*self.parameters, *self.when, *referred}


class _Feedback(msgspec.Struct):
    suggestions: list[_Fix]


class _Refusal(msgspec.Struct):
    recovery_feedback: _Feedback


_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def hidden_in(body: bytes, takes: Takes, arguments: Fields) -> tuple[str, str] | None:
    """A field that a refusal has a fix for and that is no argument, and the argument that has the fields of the request inside."""
    if takes.names is None or not any(isinstance(value, Mapping) for value in arguments.values()):
        return None
    try:
        fixes = _decode_refusal(body).recovery_feedback.suggestions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    for fix in fixes:
        strangers = sorted(fix.parameters.keys() - takes.names)
        for name, value in arguments.items():
            if strangers and isinstance(value, Mapping) and fix.fields & value.keys():
                return strangers[0], name
    return None


def only_checked(check: Callable[[dict[str, Any]], object]) -> Validated:
    """Where a framework only says whether arguments are valid: what they come to is the tool's own to find out."""

    def validated(given: dict[str, Any], names: Collection[str]) -> Fields:
        check(given)
        return {}

    return validated


def given_of(outcome: Fields, arguments: Fields, request: Fields) -> dict[str, Any]:
    """What a tool is run with: what it was called with, and what the memory has written. Its defaults are for itself to fill in."""
    return {
        name: value
        for name, value in outcome.items()
        if name in arguments or name not in request or not same_json(value, request[name])
    }


class Signed:
    """A function by its signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._first: tuple[Any, ...] = ()
        self._preset: dict[str, Any] = {}
        if isinstance(function, partial):  # what it sets is in the request, too
            self._first, self._preset, function = function.args, function.keywords, function.func
        self._function = function
        self._signature = inspect.signature(function)
        parameters = [*self._signature.parameters.values()]
        is_method = bool(parameters) and parameters[0].name in _RECEIVERS and parameters[0].kind in _NAMED
        self._receiver = frozenset({parameters[0].name} if is_method else ())
        self._named = {
            one.name: one for one in parameters if one.kind in _NAMED and one.name not in self._receiver
        }
        self._rest = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), None)
        self.is_async = any(
            map(inspect.iscoroutinefunction, (function, getattr(type(function), "__call__", None)))  # noqa: B004
        )
        """Whether what it returns is awaited: it is an async function, or an object that is called like one."""

    @property
    def takes(self) -> Takes:
        """As the function says. What can only be given by its place is not looked at, and neither is `self`."""
        defaults = {name: one.default for name, one in self._named.items() if one.default is not one.empty}
        names = None if self._rest else frozenset(self._named)
        return Takes(names, defaults, self._receiver, _by_annotations(self._function, self._named))

    def bound(self, args: Any, kwargs: Any) -> inspect.BoundArguments | None:
        """What a call gives; None where it does not fit: the function says itself what is wrong."""
        try:
            return self._signature.bind(*self._first, *args, **self._preset | kwargs)
        except TypeError:
            return None

    def named_in(self, given: inspect.BoundArguments) -> dict[str, Any]:
        """The arguments that are a request's fields: those that have a name."""
        named = {name: value for name, value in given.arguments.items() if name in self._named}
        rest: dict[str, Any] = given.arguments.get(self._rest or "", {})
        return named | rest

    def called_with(self, given: inspect.BoundArguments, arguments: Fields) -> Any:
        """Call it with other values for the arguments that have a name."""
        now = inspect.BoundArguments(given.signature, given.arguments.copy())
        for name, one in self._named.items():
            if name in arguments:
                now.arguments[name] = arguments[name]
            elif name in now.arguments and one.default is not one.empty:
                now.arguments[name] = (
                    one.default
                )  # a fix has taken it away; what comes after it keeps its place
        if self._rest is not None:
            now.arguments[self._rest] = {
                name: value for name, value in arguments.items() if name not in self._named
            }
        return self._function(*now.args, **now.kwargs)


def _by_annotations(function: Callable[..., Any], named: Mapping[str, inspect.Parameter]) -> Validated | None:
    """By the types that a function says its arguments have, as far as they can be found out."""
    whole = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        hints = get_type_hints(whole, include_extras=True)
    except Exception:  # noqa: BLE001 - of names that are not there when it runs
        return None
    types = {name: hints[name] for name in named if name in hints}
    if not types:
        return None
    reader_of = cache(lambda name: _reader_of(types[name]))  # most calls set nothing

    def validated(given: dict[str, Any], names: Collection[str]) -> Fields:
        return {name: reader_of(name)(given[name]) for name in names if name in types and name in given}

    return validated


def _reader_of(annotated: Any) -> Callable[[Any], Any]:
    """Makes a value of a type out of JSON, or raises. Where pydantic is in use, it is what reads the arguments of models."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None:
        try:
            return pydantic.TypeAdapter(annotated).validate_python  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001 - it knows nothing of such a type
            return lambda value: value
    return partial(_converted, annotated)


def _converted(annotated: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, annotated)
    except TypeError:  # it knows nothing of such a type
        return value
