"""Tools behind a memory: their arguments are amended before they run, and their outcomes are learned from, whatever framework runs them."""

import inspect
import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, cast

from shelflife.client.asking import AnyAsk, Fields, Question, Reply, Steps, driven_async
from shelflife.client.channels import TOOL
from shelflife.client.entries import Entry, Root, root_at
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome, ReadOutcome, read_outcome
from shelflife.client.sending import Call, Send, exchange, exchange_async, sending
from shelflife.contract.names import shown
from shelflife.contract.values import is_carried, same_json

__all__ = ["Takes", "Tools", "Use", "contract_headers", "name_of"]

_log = logging.getLogger("shelflife.memory")

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

Run = Callable[[dict[str, Any], Mapping[str, str]], Any]
"""Runs a tool with these arguments, and with these headers where its channel takes any. What it returns or raises is the outcome."""

_MOST_TOLD = 256
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_running: ContextVar[Mapping[str, str]] = ContextVar("the headers of the tool that is running")


def contract_headers() -> dict[str, str]:
    """Inside a tool that runs behind a memory: what to send with its HTTP request. With nothing to send, and elsewhere, it is empty."""
    return dict(_running.get({}))


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called as a tool; one that sets arguments of another is called like that."""
    whole = function.func if isinstance(function, partial) else function
    return getattr(whole, "__name__", type(whole).__name__)


class Takes(NamedTuple):
    """Which arguments a tool takes."""

    names: frozenset[str] | None = None
    """Only these are ever set; None for any."""

    defaults: Fields = MappingProxyType({})
    """What it takes those for that are not given. Only what JSON can carry is looked at."""

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any] | None) -> Self:
        """As the JSON Schema of its arguments says, which is what a model is shown."""
        properties = (schema or {}).get("properties")
        if not isinstance(properties, Mapping):
            return cls()
        is_open = bool((schema or {}).get("additionalProperties"))
        defaults = {
            name: of["default"]
            for name, of in properties.items()
            if isinstance(of, Mapping) and "default" in of
        }
        return cls(None if is_open else frozenset(properties), defaults)

    @classmethod
    def from_signature(cls, signature: inspect.Signature) -> Self:
        """As a function says. What can only be given by its place is not looked at, and neither is `self`."""
        parameters = signature.parameters.values()
        is_open = any(one.kind is one.VAR_KEYWORD for one in parameters)
        named = {one.name: one.default for one in parameters if one.kind in _NAMED and one.name != "self"}
        defaults = {name: value for name, value in named.items() if value is not inspect.Parameter.empty}
        return cls(None if is_open else frozenset(named), defaults)

    def filled(self, arguments: Fields) -> dict[str, Any]:
        """Arguments with the defaults of those that are not given."""
        missing = {name: value for name, value in self.defaults.items() if name not in arguments}
        return {name: value for name, value in missing.items() if is_carried("", {name: value})} | {
            **arguments
        }


_ANYTHING = Takes()


class _GuardOfTool(Guard, frozen=True, kw_only=True):
    """Allows nothing that a tool does not take: it would fail, where without a memory it would not."""

    guard: Guard
    takes: frozenset[str]

    def __post_init__(self) -> None:
        """The guard was checked when it was made."""

    def refusal(self, entry: Entry) -> str | None:
        strangers = entry.parameters.keys() - self.takes
        if strangers:
            return f"{min(strangers)[:64]!a} is not among the arguments of the tool"
        return self.guard.refusal(entry)


class Use(NamedTuple):
    """A use of a tool that has begun. Whoever cannot call the tool, and is only told before and after, ends it by the outcome."""

    arguments: dict[str, Any]
    """What the tool is to be used with."""

    steps: Generator[Send | Question, Reply | None, object] | None
    """What is still to be done about it; None for a tool that is left alone."""


class Tools:
    """The tools of one server, behind a memory.

    With `call` a tool is run, and run again where what it was given had gone stale: the model is shown only how that ended. With `begin`
    and `end` somebody else runs it. Whatever goes wrong with the memory is logged, and never reaches the tool.
    """

    def __init__(
        self,
        memory: Memory,
        root: Root,
        *,
        only: Collection[str] | None = None,
        operations: Mapping[str, str] = MappingProxyType({}),
        guard: Guard | None = TOOL.guard,
        conditional: bool = TOOL.conditional,
        compact: bool = TOOL.compact,
        ask: AnyAsk | None = None,
        read: ReadOutcome = read_outcome,
    ) -> None:
        """Some tools, or all of them.

        - `root` is where their contract lives, as you call it and never as a server calls itself: the address of an API, or a name of your
          own such as `mcp://billing` or `tool://billing`.
        - `only` names the tools that are of this server; all others are left alone. Without it all are.
        - `operations` says of some tools, by their names, which operation of the server they are. All others are `CALL /` and their name.
        - `guard` says what may be written into arguments; with None the memory only learns.
        - `conditional`: a tool asks the server not to carry it out if what a remembered value rests on has moved. It is then run again.
          `compact`: it says which position of the server's log is known. Both are for tools that send the headers they are given, and that
          send their arguments as the request, by the same names.
        - `ask` puts the memory's questions to the server; by default that of the memory does. Without either, an API's address is asked
          over HTTP, without credentials; behind a name of your own nobody is asked, and a table that moved is evicted whole.
        - `read` tells what an outcome says of the contract, for a channel where that can only be in one place.
        """
        given: tuple[object, object] = memory, guard  # whatever a program without types hands in
        if not (isinstance(given[0], Memory) and isinstance(given[1], Guard | None)):
            raise TypeError("tools take a Memory, and a Guard or None")
        if isinstance(only, str):
            raise TypeError(f"only takes the names of tools, as in [{only!r}]")
        self.memory = memory
        self.root = root_at(root)
        self._only = only
        self._operations = operations
        self._guard = guard
        self._is_conditional = conditional
        self._is_compact = compact
        self._ask = memory.ask if ask is None else ask
        self._ask_async = self._ask
        if self._ask is None and self.root.startswith(("http://", "https://")):
            # only here: HTTP, TLS and e-mail of the standard library take as long to import as all the rest
            from shelflife.client.http_asking import ask_http, ask_http_async

            self._ask, self._ask_async = ask_http, ask_http_async
        self._read = read
        self._untold: set[str] = set()
        """The tools of which it was said that nothing is remembered."""

    def names(self, name: str) -> bool:
        """Whether a tool is among those that are of this server by name."""
        return self._only is not None and name in self._only

    def operation_of(self, name: str) -> str | None:
        """Under which name the server knows a tool; None for one that is left alone."""
        is_left_alone = self._only is not None and name not in self._only
        return None if is_left_alone else self._operations.get(name, f"CALL /{name}")

    def call(self, name: str, arguments: Fields, run: Run, takes: Takes = _ANYTHING) -> Any:
        """Run a tool with what is remembered for its arguments, and learn from the outcome, which is returned or raised."""
        call = self._called(name, arguments, takes)
        if call is None:
            return run({**arguments}, {})
        if inspect.iscoroutinefunction(self._ask):
            raise TypeError("what answers is async: a tool that is not cannot wait for it")
        ended = _Ended(self._read)

        def answer(step: Send | Question) -> Any:
            if isinstance(step, Question):
                return None if self._ask is None else self._ask(step)
            with ended.by(step.headers):
                ended.outcome = run(_given(step, arguments, call), step.headers)
            return ended.read()

        exchange(self.memory, call, answer)
        return ended.shown()

    async def call_async(self, name: str, arguments: Fields, run: Run, takes: Takes = _ANYTHING) -> Any:
        """The same, awaiting what can be awaited."""
        call = self._called(name, arguments, takes)
        if call is None:
            return await _awaited(run({**arguments}, {}))
        ended = _Ended(self._read)

        async def answer(step: Send | Question) -> Reply | None:
            if isinstance(step, Question):
                return None if self._ask_async is None else await _awaited(self._ask_async(step))
            with ended.by(step.headers):
                ended.outcome = await _awaited(run(_given(step, arguments, call), step.headers))
            return ended.read()

        await exchange_async(self.memory, call, answer)
        return ended.shown()

    async def begin(self, name: str, arguments: Fields, takes: Takes = _ANYTHING) -> Use:
        """Before a tool is used by somebody else: the arguments that it is to be used with. No headers go with it."""
        call = self._called(name, arguments, takes)
        if call is None:
            return Use({**arguments}, None)
        steps = sending(self.memory, call._replace(conditional=False, compact=False))
        send = await self._until_sent(steps, None)
        return Use({**arguments} if send is None else _given(send, arguments, call), steps)

    async def end(self, use: Use, outcome: Any, *, is_error: bool = False) -> Any:
        """After it was used: learn from the outcome. Gives back what a model is to be shown of it."""
        if use.steps is None:
            return outcome
        shown, reply = _read(self._read, outcome, is_error=is_error)
        await self._until_sent(use.steps, reply)
        use.steps.close()
        return shown

    def wrap(self, function: Callable[_Given, _Result], name: str | None = None) -> Callable[_Given, _Result]:
        """A function that does what this one does, behind the memory. It is called as before, and looks the same to whoever inspects it."""
        whole = function
        first: tuple[Any, ...] = ()
        preset: dict[str, Any] = {}
        if isinstance(function, partial):  # what it sets is in the request, too
            whole, first, preset = function.func, function.args, function.keywords
        signature = inspect.signature(whole)
        takes, called = Takes.from_signature(signature), name or name_of(function)

        def bound(args: Any, kwargs: Any) -> inspect.BoundArguments | None:
            try:
                return signature.bind(*first, *args, **preset | kwargs)
            except TypeError:
                return None  # it is called all the same, and says itself what is wrong

        def again(given: inspect.BoundArguments) -> Run:
            return lambda arguments, _: _called_with(whole, given, arguments)

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def behind_async(*args: _Given.args, **kwargs: _Given.kwargs) -> Any:
                if (given := bound(args, kwargs)) is None:
                    return await function(*args, **kwargs)
                return await self.call_async(called, _named_in(given), again(given), takes)

            return cast("Callable[_Given, _Result]", behind_async)

        @wraps(function)
        def behind(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
            if (given := bound(args, kwargs)) is None:
                return function(*args, **kwargs)
            return cast("_Result", self.call(called, _named_in(given), again(given), takes))

        return behind

    def _called(self, name: str, arguments: Fields, takes: Takes) -> Call | None:
        operation = self.operation_of(name)
        if operation is None:
            return None
        guard = self._guard
        if guard is not None and takes.names is not None:
            guard = _GuardOfTool(guard=guard, takes=takes.names)
        request = takes.filled(arguments)
        if not is_carried(operation, request):
            self._tell_of_what_is_not_carried(name, request)
        return Call(self.root, operation, request, guard, self._is_conditional, self._is_compact)

    def _tell_of_what_is_not_carried(self, tool: str, request: Fields) -> None:
        """Say once of each tool why nothing is remembered for its calls."""
        if tool not in self._untold and len(self._untold) < _MOST_TOLD:
            self._untold.add(tool)
            which = next((name for name, value in request.items() if not is_carried("", {name: value})), "")
            _log.warning(
                "nothing is remembered for calls of the tool %s: JSON cannot carry its argument %s",
                shown(tool),
                shown(which),
            )

    async def _until_sent(
        self, steps: Generator[Send | Question, Reply | None, object], reply: Reply | None
    ) -> Send | None:
        return await driven_async(_until_sent(steps, reply), self._ask_async, is_remote=self.memory.is_remote)


def _until_sent(
    steps: Generator[Send | Question, Reply | None, object], reply: Reply | None
) -> Steps[Send | None]:
    """The questions of steps up to the next request; None when they are over."""
    try:
        step = steps.send(reply)
        while isinstance(step, Question):
            step = steps.send((yield step))
    except StopIteration:
        return None
    return step


class _Ended:
    """How the last run of a tool has ended."""

    def __init__(self, read: ReadOutcome) -> None:
        self._read_outcome = read
        self.outcome: Any = None
        self._error: Exception | None = None

    @contextmanager
    def by(self, headers: Mapping[str, str]) -> Iterator[None]:
        """While it runs, with these headers. What it raises is its outcome."""
        before, self._error = _running.set(headers), None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it is raised again once the memory has seen it
            self._error = error
        finally:
            _running.reset(before)

    def read(self) -> Reply | None:
        """What it says of the contract, which is taken out of it."""
        outcome = self.outcome if self._error is None else self._error
        self.outcome, reply = _read(self._read_outcome, outcome)
        return reply

    def shown(self) -> Any:
        """What was returned; what was raised is raised."""
        if self._error is not None:
            raise self._error
        return self.outcome


def _read(read: ReadOutcome, outcome: Any, *, is_error: bool = False) -> Outcome:
    try:
        return read(outcome, is_error=is_error)
    except Exception:  # noqa: BLE001 - a tool does not fail for want of memory
        _log.warning("the outcome of a tool is not understood, and goes past the memory", exc_info=True)
        return Outcome(outcome, None)


def _given(send: Send, arguments: Fields, call: Call) -> dict[str, Any]:
    """What a tool is run with: what it was called with, and what the memory has written. Its defaults are for itself to fill in."""
    return {
        name: value
        for name, value in send.request.items()
        if name in arguments or name not in call.request or not same_json(value, call.request[name])
    }


async def _awaited(outcome: Any) -> Any:
    return await outcome if inspect.isawaitable(outcome) else outcome


def _named_in(given: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments that are a request's fields: those that have a name."""
    named: dict[str, Any] = {}
    for name, value in given.arguments.items():
        kind = given.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        elif kind in _NAMED and name != "self":
            named[name] = value
    return named


def _called_with(
    function: Callable[..., _Result], given: inspect.BoundArguments, arguments: Mapping[str, Any]
) -> _Result:
    """Call a function with other values for the arguments that have a name."""
    parameters = given.signature.parameters
    rest = next((name for name, one in parameters.items() if one.kind is one.VAR_KEYWORD), None)
    now = inspect.BoundArguments(given.signature, given.arguments.copy())
    for name in _named_in(given).keys() - arguments.keys():
        if name in parameters and parameters[name].default is not inspect.Parameter.empty:
            del now.arguments[name]  # a fix has taken it away
    if rest is not None:
        now.arguments[rest] = {}
    for name, value in arguments.items():
        if name in parameters and parameters[name].kind in _NAMED:
            now.arguments[name] = value
        elif rest is not None:
            now.arguments[rest][name] = value
    return function(*now.args, **now.kwargs)
