"""Tools behind a memory: their arguments are amended before they run, and their outcomes are learned from, whatever framework runs them."""

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from contextlib import closing
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from shelflife.client.arguments import GuardOfTool, Signed, Takes, given_of, hidden_in
from shelflife.client.asking import AnyAsk, Fields, Question, Reply, Steps, awaited, driven, driven_async
from shelflife.client.channels import TOOL
from shelflife.client.client_asking import HttpClient, ask_of
from shelflife.client.entries import Root, origin_of, root_at
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome, ReadOutcome, Source, is_pause, read_outcome
from shelflife.client.running import Running, contract_headers
from shelflife.client.sending import Call, Send, sending
from shelflife.contract.names import shown
from shelflife.contract.values import is_carried, same_json

__all__ = ["Takes", "Tools", "Use", "contract_headers", "name_of"]

_log = logging.getLogger("shelflife.memory")

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

Run = Callable[[dict[str, Any], Mapping[str, str]], Any]
"""Runs a tool with these arguments, and with these headers where its channel takes any. What it returns or raises is the outcome."""

_MOST_TOLD = 256
_UNEXPLAINED = (
    "a tool has failed with remembered values in its arguments, and nothing that can be read says why"
)

_UNSEEN = (
    "the conditional tool of %s was not seen to send contract_headers() with remembered values in its arguments, so"
    " these may have been stale: it has to send them before it returns, and in the thread or task that it is run in"
)

_TOO_LATE = (
    "the tool for %s returns a generator, which makes its request when the memory has already looked: nothing is"
    " learned from it, and it sends no contract_headers()"
)

_HIDDEN = (
    "what is remembered for %s cannot be used: a fix sets the field %s, which is none of the tool's arguments. Arguments"
    " are the fields of a request, and here these are inside the argument %s: let the tool take each as its own"
)

_Using = Generator[Send | Question, Reply | None, object]
"""All that is done about one use of a tool."""


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called as a tool; one that sets arguments of another is called like that."""
    whole = function.func if isinstance(function, partial) else function
    return getattr(whole, "__name__", type(whole).__name__)


_ANYTHING = Takes()


class Use(msgspec.Struct, frozen=True):
    """A use of a tool that has begun. Whoever cannot call the tool, and is only told before and after, ends it by the outcome."""

    arguments: dict[str, Any]
    """What the tool is to be used with."""

    steps: _Using | None
    """What is still to be done about it; None for a tool that is left alone."""

    running: Running | None = None
    """The run that has begun."""


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
        ask: AnyAsk | HttpClient | None = None,
        read: ReadOutcome = read_outcome,
    ) -> None:
        """Some tools, or all of them.

        - `memory` is what they learn into.
        - `root` is where their contract lives, as you call it and never as a server calls itself: the address of an API, or a name of your
          own such as `mcp://billing` or `tool://billing`. Responses of other origins do not count; a name stands for the origin that first
          speaks the contract under it.
        - `only` names the tools that are of this server; all others are left alone. Without it all are.
        - `operations` says of some tools, by their names, which operation of the server they are. All others are `CALL /` and their name.
        - `guard` says what may be written into arguments; with None the memory only learns.
        - `conditional`: a tool asks the server not to carry it out if what a remembered value rests on has moved. It is then run again, if
          it has sent the headers with one request alone, and that is the one that was refused. This is for tools that send the headers
          they are given, and that send their arguments as the request, by the same names.
        - `compact`: a tool says which position of the server's log is known. This is for the same tools.
        - `ask` puts the memory's questions to the server: a function, or the client of httpx2, httpx, requests or aiohttp that the tools
          use, which logs in. By default that of the memory does. Without either, an API's address is asked over HTTP, without
          credentials; behind a name of your own nobody is asked, and a table that moved is evicted whole.
        - `read` tells what an outcome says of the contract, for a channel where that can only be in one place. By default it is looked for
          wherever a tool may have it.
        """
        given: tuple[object, object] = memory, guard  # whatever a program without types hands in
        if not (isinstance(given[0], Memory) and isinstance(given[1], Guard | None)):
            raise TypeError(
                "tools take a Memory first, then a root, as in Tools(memory, root); guard= is a Guard or None"
            )
        if isinstance(only, str):
            raise TypeError(f"only takes the names of tools, as in [{only!r}]")
        if not isinstance(operations, Mapping):
            raise TypeError("operations says which operation a tool is, as in {'subscribe': 'POST /orders'}")
        self.memory = memory
        self.root = root_at(root)
        is_address = self.root.startswith(("http://", "https://"))
        self._origin = origin_of(self.root) if is_address else None
        """Where its responses come from; None where the root is a name."""
        self._only = only
        self._operations = operations
        self._guard = guard
        self._is_conditional = conditional
        self._is_compact = compact
        self._ask = memory.ask if ask is None else ask_of(ask)
        self._ask_async = self._ask
        if self._ask is None and is_address:
            # only here: HTTP, TLS and e-mail of the standard library take as long to import as all the rest
            from shelflife.client.http_asking import ask_http, ask_http_async

            self._ask, self._ask_async = ask_http, ask_http_async
        self._read = read
        self._told: set[str] = set()
        """The tools of which it was said that nothing is remembered, and the origins that are not heeded."""

    def is_named(self, name: str) -> bool:
        """Whether a tool is among those that are of this server by name."""
        return self._only is not None and name in self._only

    def operation_of(self, name: str) -> str | None:
        """Under which name the server knows a tool; None for one that is left alone."""
        is_left_alone = self._only is not None and name not in self._only
        return None if is_left_alone else self._operations.get(name, f"CALL /{name}")

    def call(self, name: str, arguments: Fields, run: Run, takes: Takes = _ANYTHING) -> Any:
        """Run a tool with what is remembered for its arguments, and learn from the outcome, which is returned or raised."""
        running = self._running(name, arguments, takes)
        if running is None:
            return run({**arguments}, {})
        if inspect.iscoroutinefunction(self._ask):
            raise TypeError("what answers is async: a tool that is not cannot wait for it")

        def answer(step: Send | Question) -> Reply | None:
            if isinstance(step, Question):
                return None if self._ask is None else _at_once(self._ask(step))
            outcome = None
            with running.begun(step) as begun:
                outcome = run(*begun)
            return running.ended(outcome)

        driven(self._using(running), answer)
        return running.shown()

    async def call_async(self, name: str, arguments: Fields, run: Run, takes: Takes = _ANYTHING) -> Any:
        """The same, awaiting what can be awaited."""
        running = self._running(name, arguments, takes)
        if running is None:
            return await awaited(run({**arguments}, {}))

        async def answer(step: Send | Question) -> Reply | None:
            if isinstance(step, Question):
                return None if self._ask_async is None else await awaited(self._ask_async(step))
            outcome = None
            with running.begun(step) as begun:
                outcome = await awaited(run(*begun))
            return running.ended(outcome)

        await driven_async(self._using(running), answer, is_remote=self.memory.is_remote)
        return running.shown()

    async def begin(self, name: str, arguments: Fields, takes: Takes = _ANYTHING) -> Use:
        """Before a tool is used by somebody else: the arguments that it is to be used with. No headers go with it."""
        running = self._running(name, arguments, takes, with_headers=False)
        if running is None:
            return Use({**arguments}, None)
        steps = self._using(running)
        send = await self._until_sent(steps, None)
        return Use({**arguments}, None) if send is None else Use(running.begin(send), steps, running)

    async def end(
        self, use: Use, outcome: Any, *, is_error: bool = False, used_with: Fields | None = None
    ) -> Any:
        """After it was used: learn from the outcome. Gives back what a model is to be shown of it.

        `used_with` is what it was used with, where that is told. Where it is not as it was to be, the outcome says nothing of that.
        """
        if use.steps is None or use.running is None:
            return outcome
        with closing(use.steps):
            if used_with is not None and not same_json(dict(used_with), use.arguments):
                told = (
                    "is used with other arguments than the memory gives it, and nothing is learned from that"
                )
                self._tell_once(f"a tool of {self.root} {told}: does another hook change them too?", about="")
                return outcome
            await self._until_sent(use.steps, use.running.ended(outcome, is_error=is_error))
        return use.running.shown()

    def wrap(self, function: Callable[_Given, _Result], name: str | None = None) -> Callable[_Given, _Result]:
        """A function that does what this one does, behind the memory. It is called as before, and looks the same to whoever inspects it."""
        signed, called = Signed(function), name or name_of(function)
        takes = signed.takes

        def again(given: inspect.BoundArguments) -> Run:
            return lambda arguments, _: signed.called_with(given, arguments)

        if signed.is_async:

            @wraps(function)
            async def behind_async(*args: _Given.args, **kwargs: _Given.kwargs) -> Any:
                if (given := signed.bound(args, kwargs)) is None:
                    return await cast("Any", function(*args, **kwargs))
                return await self.call_async(called, signed.named_in(given), again(given), takes)

            return cast("Callable[_Given, _Result]", behind_async)

        @wraps(function)
        def behind(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
            if (given := signed.bound(args, kwargs)) is None:
                return function(*args, **kwargs)
            return cast("_Result", self.call(called, signed.named_in(given), again(given), takes))

        return behind

    def _running(
        self, name: str, arguments: Fields, takes: Takes, *, with_headers: bool = True
    ) -> Running | None:
        """A run of a tool that is to come; None for one that is left alone."""
        operation = self.operation_of(name)
        if operation is None:
            return None
        request, guard = takes.filled(arguments), None
        if self._guard is not None:
            guard = GuardOfTool(self._guard, takes, arguments, request)
        if not is_carried(operation, request):
            which = next((name for name, value in request.items() if not is_carried("", {name: value})), "")
            self._tell_once(
                f"nothing is remembered for calls of the tool {shown(name)}:"
                f" JSON cannot carry its argument {shown(which)}",
                about=name,
            )
        if takes.judged_by and guard is not None:
            told = f"nothing is written into the arguments of the tool {shown(name)}, only learned from its outcomes"
            self._tell_once(f"{told}: they are judged before, by {takes.judged_by}", about=f"judged {name}")
        conditional, compact = (with_headers and one for one in (self._is_conditional, self._is_compact))
        call = Call(self.root, operation, request, guard, conditional, compact)
        given = partial(_given, arguments=arguments, request=request, takes=takes)
        return Running(call, given, partial(self._heard, call, takes))

    def _using(self, running: Running) -> _Using:
        """All that is done about one use of a tool: where it fails and does not say why, what it was given may be what is wrong."""
        reply = yield from sending(
            self.memory, running.call._replace(is_done=running.is_done, is_undone=running.is_undone)
        )
        if isinstance(running.outcome, Generator | AsyncGenerator):
            self._tell_once(_TOO_LATE % shown(running.call.operation), about=f"late {running.call.operation}")
        if running.is_unseen and self._read is read_outcome:  # else it is for the channel to send it
            self._tell_once(_UNSEEN % shown(running.call.operation), about=f"unseen {running.call.operation}")
        if running.is_unexplained:
            try:
                yield from self.memory.doubting(self.root, _UNEXPLAINED)
            except Exception:  # noqa: BLE001 - a tool does not fail for want of memory
                _log.warning("a server could not be asked about a tool that has failed", exc_info=True)
        return reply

    def _heard(self, call: Call, takes: Takes, outcome: Any, *, is_error: bool = False) -> Outcome:
        """What an outcome says, if it is the server that says it. What another has answered says nothing of this one."""
        if is_pause(outcome):
            return Outcome(outcome, None)
        try:
            read = self._read(outcome, is_error=is_error)
        except Exception:  # noqa: BLE001 - a tool does not fail for want of memory
            _log.warning("the outcome of a tool is not understood, and goes past the memory", exc_info=True)
            return Outcome(outcome, None, is_error or isinstance(outcome, BaseException))
        if not self._is_its_own(read):
            return Outcome(read.shown, None, source=read.source)
        hidden = None if read.reply is None else hidden_in(read.reply.body, takes, call.request)
        if hidden is not None:
            told = _HIDDEN % (shown(call.operation), *map(shown, hidden))
            self._tell_once(told, about=f"hidden {call.operation}")
        return read

    def _is_its_own(self, read: Outcome) -> bool:
        """Whether an outcome is of this server. A name stands for the origin that first speaks the contract under it, without a redirect."""
        source = read.source or Source()
        origin, sent_to = source.origin, source.sent_to
        if origin is None:
            return True
        own = self._origin or self.memory.heard_from.get(self.root)
        if own is None and (origin != sent_to or not read.has_contract):
            return origin == sent_to
        own = own or self.memory.heard_from.setdefault(self.root, origin)
        if origin != own and read.has_contract:
            told = f"what {origin} says is not heeded: {self.root} "
            self._tell_once(told + ("is another server" if self._origin else f"is {own}"), about=origin)
        return origin == own

    def _tell_once(self, text: str, *, about: str) -> None:
        if about not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(about)
            _log.warning("%s", text)

    async def _until_sent(self, steps: _Using, reply: Reply | None) -> Send | None:
        try:
            until = _until_sent(steps, reply)
            return await driven_async(until, self._ask_async, is_remote=self.memory.is_remote)
        except BaseException:
            steps.close()  # what is withheld while a server is asked is withheld no longer
            raise


def _until_sent(steps: _Using, reply: Reply | None) -> Steps[Send | None]:
    """The questions of steps up to the next request; None when they are over."""
    try:
        step = steps.send(reply)
        while isinstance(step, Question):
            step = steps.send((yield step))
    except StopIteration:
        return None
    return step


def _given(send: Send, arguments: Fields, request: Fields, takes: Takes) -> dict[str, Any]:
    """What a tool is run with: what a fix has set is made into what the tool would be given for it."""
    given = given_of(send.request, arguments, request)
    if takes.validated is None or not send.carried:
        return given
    fixed = [name for name in given if name not in arguments or not same_json(given[name], arguments[name])]
    try:
        return given | dict(takes.validated(given, fixed)) if fixed else given
    except Exception:  # noqa: BLE001 - each fix was valid; a tool does not fail for want of memory
        _log.warning("the arguments of a tool are not understood with what is remembered", exc_info=True)
        return {**arguments}


def _at_once(reply: Any) -> Reply | None:
    """What has answered a tool that cannot wait; nothing, where it would have to be awaited."""
    if not inspect.isawaitable(reply):
        return cast("Reply | None", reply)
    if inspect.iscoroutine(reply):
        reply.close()
    _log.warning("what answers is async: a tool that is not cannot wait for it, and nothing is asked")
    return None
