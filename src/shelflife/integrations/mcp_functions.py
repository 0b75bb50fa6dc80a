"""The functions that tools of an MCP server run: what stands before one, and how a check comes right before it.

A server has many places where somebody may be asked who they are: middleware, `auth`, visibility, dependencies, decorators. So
nothing is judged anywhere but at the function itself, when all of that has let the caller pass.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shelflife.server.models import DICTIONARY, Reader, seen_of

__all__ = ["DECORATED", "Arguments", "Listed", "look_at", "with_check"]

DECORATED = "it has a decorator, which may ask who is calling"

_MOST_SEEN = 1000

Values = dict[str, Any]


class Listed(NamedTuple):
    """A tool that a server has."""

    name: str
    version: str = ""
    function: Callable[..., Any] | None = None
    """What it runs; None when that is out of reach."""

    guards: tuple[str, ...] = ()
    """What stands before it, or might, that does not stand before the contract's questions too."""

    obstacle: str = ""
    """Why no check can come right before what it runs; empty when one can."""

    schema: Mapping[str, Any] = {}
    """That of its arguments."""

    model: Callable[[], Any] = lambda: None
    """Gives the model that its arguments are read by. May raise anything: a framework may take what another cannot read."""

    parsed: Callable[[Values], Values] = dict
    """What is done to the arguments before the model reads them."""

    def is_as(self, other: "Listed") -> bool:
        """Whether this is the same tool, with the same things before it."""
        return self == other._replace(model=self.model, parsed=self.parsed)

    def reader_of_its_own_check(self) -> Reader:
        """How it reads what was sent when it checks by itself: it names the arguments too that were left out."""
        nulls = [name for name, of in self.arguments.items() if "default" in of and of["default"] is None]
        return DICTIONARY._replace(convert=lambda sent: {**dict.fromkeys(nulls), **sent})

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The schema of each."""
        return self.schema.get("properties", {})  # type: ignore[no-any-return]


class Arguments:
    """How the arguments of one tool are read before it runs."""

    def __init__(self, tool: Listed) -> None:
        self._names = frozenset(tool.arguments)
        self.reader: Reader | None = None
        """What is known of that; None when nothing is."""
        try:
            self._model = tool.model()
        except Exception:  # noqa: BLE001 - what cannot be read is unknown
            self._model = None
        reader = None if self._model is None else Reader.of_pydantic(self._model)
        if reader is not None:
            read, parsed = reader.convert, tool.parsed
            self.reader = reader._replace(convert=lambda sent: read(parsed({**sent})))

    def given(self, values: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
        """What a policy is shown of the values that the function is given: just these, and by no second reading."""
        if self.reader is None:
            return seen_of({name: values[name] for name in self._names if name in values}, sent)
        fields = self._model.model_fields
        held = {name: values[name if name in values else of.alias] for name, of in fields.items()}
        return self._model.model_construct(**held)


def with_check(function: Callable[..., Any], check: Callable[[Values], None]) -> Callable[..., Any]:
    """The same function, which checks what it is given before anything else."""
    signature = inspect.signature(function)
    defaults = {
        one.name: one.default
        for one in signature.parameters.values()
        if one.default is not inspect.Parameter.empty
    }

    def check_all(args: tuple[Any, ...], named: Values) -> None:
        by_place = signature.bind_partial(*args).arguments if args else {}
        check({**defaults, **by_place, **named})

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_later(*args: Any, **named: Any) -> Any:
            check_all(args, named)
            return await function(*args, **named)

        return checked_later

    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        check_all(args, named)
        return function(*args, **named)

    return checked


class Seen(NamedTuple):
    """What can be seen of a function."""

    function: Any
    has_decorator: bool
    """Whether something stands around it. A wrapper that has the same parameters and does not say so cannot be seen."""

    is_plain: bool
    """Whether nothing can be seen that stands around it: it is a function, and neither an object that can be called nor decorated."""

    parameters: tuple[inspect.Parameter, ...]


_seen: dict[int, Seen] = {}
"""By identity. The functions are kept, so that no other gets it."""


def look_at(function: Any) -> Seen:
    """What can be seen of a function. That takes a while, so it is looked at once."""
    seen = _seen.get(id(function))
    if seen is None:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        is_decorated = _has_decorator(function)
        is_function = inspect.isroutine(function) and function.__name__ != "__call__"
        parameters = tuple(inspect.signature(function).parameters.values())
        seen = _seen[id(function)] = Seen(
            function, is_decorated, is_function and not is_decorated, parameters
        )
    return seen


def _has_decorator(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    holder = getattr(function, "__self__", None)
    if hasattr(function, "__wrapped__") or hasattr(holder, "__wrapped__"):
        return True
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if code is None:
        return False
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return {*code.co_varnames[:count]} != {*inspect.signature(plain).parameters}
