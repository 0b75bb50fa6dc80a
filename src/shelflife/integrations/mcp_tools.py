"""Tools of an MCP server under the contract: a call sees one state, its refusal is answered, its result is stamped.

Servers of the SDK and of FastMCP share this.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from shelflife.contract.envelopes import META_KEY, Envelope, read_headers
from shelflife.contract.errors import BadMessage
from shelflife.contract.names import shown
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.extras import needing
from shelflife.integrations.mcp_functions import Arguments, Listed, with_check
from shelflife.server.errors import UsageError, leaves_of
from shelflife.server.feedback import JSON
from shelflife.server.operations import Operation, Operations
from shelflife.server.pinning import Incoming, answer_to
from shelflife.server.pins import Pin
from shelflife.server.policies import PreconditionFailed, Refusal
from shelflife.server.provider import Provider

with needing("mcp"):
    from mcp.server.mcpserver.exceptions import UnexpectedToolError

__all__ = ["Answered", "Called", "ToolsUnderContract", "leave_refusals_out_of", "with_meta"]

_METHOD = "CALL"
_OF_THE_CONTRACT = "contract-"
_DONE, _FAILED = 200, 400
_UNSEEN = Operations(opaque=[""])
"""Of a server whose tools nobody has listed yet."""

_NOTHING = Operations()

_Key = tuple[str, str]
"""The name and the version of a tool."""

Result = TypeVar("Result")


class Called(NamedTuple):
    """One call of a tool."""

    name: str
    arguments: Mapping[str, Any]
    meta: object = None
    """The metadata of the request."""

    headers: Mapping[str, str] = {}
    """Those of the HTTP request that it came by, if it did; by lower-case name."""


class Answered(NamedTuple, Generic[Result]):
    """What becomes of a call."""

    result: Result | None
    """That of the tool; None when it is refused."""

    error: str = ""
    """What a model is told of the refusal."""

    meta: Mapping[str, Any] = {}
    """What goes into the metadata of the result."""


class _Known(NamedTuple):
    """A tool as it was seen last."""

    tool: Listed
    operation: Operation
    function: Callable[..., Any] | None
    """What it runs under the contract, if it is checked."""


class _Calling:
    """A call that is under way."""

    def __init__(self, tool: str, arguments: Mapping[str, Any]) -> None:
        self.tool, self.arguments = tool, arguments
        self.operation: Operation | None = None
        """That of the tool which the server has found for it."""


class ToolsUnderContract:
    """The tools of one server."""

    def __init__(
        self,
        provider: Provider,
        list_tools: Callable[[], Awaitable[list[Listed]]],
        find_tool: Callable[[Any, str, str], Awaitable[Listed | None]],
        is_finished: Callable[[Any], bool],
        *,
        checked: Collection[str] = (),
        operations: Mapping[str, str] | None = None,
        fixes: Collection[str] | None = None,
    ) -> None:
        """`list_tools` gives all tools, whoever may call them. `find_tool` gives the one of a name and version that a caller could call
        now, by the context of its request; None when there is none. `is_finished` tells a result from what asks for something first.

        `checked` and `fixes` are names of tools, and `operations` says of some which operation they are: see `install`.
        """
        for names in (checked, fixes or ()):
            if isinstance(names, str):
                raise UsageError(f"{shown(names)} is one text; give a list of tools")
        self._provider = provider
        self._list_tools, self._find_tool, self._is_finished = list_tools, find_tool, is_finished
        self._checked = frozenset(checked)
        self._named = {tool: Operation.from_name(name).name for tool, name in (operations or {}).items()}
        self._known: dict[_Key, _Known] = {}
        """All tools that were ever seen, as they were seen last."""
        self._present: frozenset[_Key] = frozenset()
        """Those that were there when they were listed last."""
        self._calling: ContextVar[_Calling | None] = ContextVar(f"shelflife_calling_{id(self)}", default=None)
        self._askable: ContextVar[Operations] = ContextVar(f"shelflife_askable_{id(self)}")
        """What whoever asks for fixes could call now."""
        provider.apps.attach(self._listing)
        told = None if fixes is None else [self._name_of(tool) for tool in fixes]
        self._disclosed = provider.apps.disclosed_fixes(lambda: self._askable.get(_NOTHING), told)

    def disclosed(self, asked: str) -> Operation | None:
        """The operation of a tool that a client names, if its fixes may be told without a call. `be_asked` comes first."""
        return self._disclosed(self._meant(asked))

    async def be_asked(self, asked: str, context: Any) -> None:
        """Before fixes are told without a call: look which tools there are now, and which whoever asks would find.

        All others count too: a policy for every tool is told only where nobody is kept from any of them.
        """
        await self._list()
        operations = {key: self._operation(key) for key in self._known}
        asked_for = Operations(operations.values()).find_named(self._meant(asked))
        are_open, is_there = not any(one.is_guarded for one in operations.values()), False
        for key in self._present:
            is_meant = asked_for is not None and operations[key].name == asked_for.name
            if is_meant or are_open:
                found = await self._find_tool(context, *key)
                operations[key] = self._know(found).operation if found else _closed(operations[key])
                is_there = is_there or (is_meant and found is not None)
        self._askable.set(Operations(operations.values()) if is_there else _NOTHING)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """While the server runs. Policies are held to its tools when it starts, and the provider's files are closed when it ends."""
        await self.be_ready()
        self._provider.begin_life()
        try:
            yield
        finally:
            self._provider.end_life()

    async def be_ready(self, tool: str | None = None) -> None:
        """Before anything is answered: know which tools there are, and this one too if it has been added since."""
        if not self._known or not (tool is None or any(tool == name for name, _ in self._known)):
            await self._list()

    async def _list(self) -> None:
        listed = await self._list_tools()
        missing = {*self._checked, *self._named} - {one.name for one in listed}
        if not self._known:  # a tool that is taken away later is nobody's mistake
            if missing:
                raise UsageError(
                    f"install names the tool {shown(min(missing))}, and the server has no such tool"
                )
            for one in listed:
                self._be_able_to_check(one)
        for one in listed:
            self._know(one)
        self._present = frozenset((one.name, one.version) for one in listed)

    def _be_able_to_check(self, tool: Listed) -> None:
        if tool.name in self._checked and tool.obstacle:
            raise UsageError(
                f"install is to check the tool {shown(tool.name)} before it runs, and a check comes after every login:"
                f" {tool.obstacle}; call provider.check in it instead"
            )

    def _know(self, tool: Listed) -> "_Known":
        """What is known of a tool. It may have been replaced since it was seen last."""
        key = tool.name, tool.version
        before = self._known.get(key)
        if before is None or not before.tool.is_as(tool):
            arguments = Arguments(tool) if tool.name in self._checked else None
            method, _, template = self._name_of(tool.name).partition(" ")
            operation = Operation.of_route(
                method,
                template,
                guards=tool.guards,
                is_stamped=not tool.guards,
                endpoint=tool.name,
                body=arguments.reader if arguments else tool.reader_of_its_own_check(),
            )
            check = arguments and partial(self._check, operation, arguments)
            function = with_check(tool.function, check) if tool.function and check else None
            self._known[key] = _Known(tool, operation, function)
            self._provider.apps.are_held = False
        return self._known[key]

    def _check(self, operation: Operation, arguments: Arguments, values: Mapping[str, Any]) -> None:
        """Right before a tool runs."""
        calling = self._calling.get() or _Calling(operation.endpoint, values)
        calling.operation = calling.operation or operation
        is_called = calling.operation.name == operation.name
        given = arguments.given(values, calling.arguments)
        self._provider.check(given, None if is_called else operation.name)

    @property
    def is_calling(self) -> bool:
        """Whether a call is under way here."""
        return self._calling.get() is not None

    def found(self, tool: Listed) -> Callable[..., Any] | None:
        """A tool is about to run. Gives what it is to run in place of its function, if it is checked."""
        calling = self._calling.get()
        if calling is None:
            return None
        known = self._know(tool)
        if calling.operation is None and calling.tool == tool.name:
            calling.operation = known.operation
        self._be_able_to_check(tool)
        return known.function

    async def call(self, called: Called, run: Callable[[], Awaitable[Result]]) -> Answered[Result]:
        """Run a tool under the contract. What else it raises is its own."""
        provider, is_inner = self._provider, self._calling.get() is not None
        await self.be_ready(called.name)
        try:
            # What a client asks is about the tool that it calls, and not about those that are called by that.
            incoming = Incoming(provider, _METHOD, {} if is_inner else _headers_of(called))
        except BadMessage as error:
            return Answered(None, str(error))
        calling = _Calling(called.name, called.arguments)
        pin = await incoming.pinned(lambda: calling.operation)
        pin.headers = partial(_headers_of, called)
        with suppress(TypeError, ValueError, RecursionError):  # a tool may call another with any objects
            pin.hear(msgspec.json.encode(called.arguments))
        tokens = provider.pinned.set(pin), self._calling.set(calling)
        try:
            result = await run()
        except Exception as error:
            failure = pin.failure_in(_beneath(error))
            if failure is None or is_inner:
                raise
            return self._refused(called.name, failure, pin)
        finally:
            pin.is_over = True
            provider.pinned.reset(tokens[0])
            self._calling.reset(tokens[1])
        if not self._is_finished(result):  # it is called once more, and only then carried out
            return Answered(result)
        return Answered(result, meta=self._stamp(pin, is_error=bool(getattr(result, "is_error", False))))

    def _refused(self, tool: str, failure: Exception, pin: Pin) -> Answered[Any]:
        answer = answer_to(failure, self._provider, pin, JSON)
        if not isinstance(failure, Refusal):
            return Answered(None, str(failure) if answer.status < 500 else "internal server error")
        if answer.content_type != JSON:  # at Level 0
            return Answered(None, answer.body.decode().rstrip())
        headers = dict(answer.headers) | _verdict_of(pin)
        envelope = Envelope(answer.status, msgspec.json.decode(answer.body), headers)
        return Answered(None, envelope.trailing("\n".join(_told(tool, failure, pin))), envelope.as_meta)

    def _stamp(self, pin: Pin, *, is_error: bool) -> dict[str, Any]:
        status, headers, body = _FAILED if is_error else _DONE, _verdict_of(pin), None
        if not is_error:
            self._warn_of_what_was_not_checked(pin)
        if pin.stamp.members and pin.may_be_stamped(status):
            pin.counts.stamped += 1
            body = msgspec.json.decode(b"{" + pin.stamp.members + b"}")
            headers |= dict(pin.stamp.beside)
        return Envelope(status, body, headers).as_meta if body or headers else {}

    def _warn_of_what_was_not_checked(self, pin: Pin) -> None:
        operation, apps = pin.find_operation(), self._provider.apps
        name = operation and operation.name
        if not pin.has_checked and name in self._provider.policies.operations:
            apps.warn_once(
                f"there is a policy for {name}, and a call was carried out without a check;"
                " call provider.check in the tool, or give install its name in checked="
            )
        elif pin.precondition is not None and pin.verdict is None:
            pin.counts.count("preconditions", "unjudged")
            apps.warn_once(
                f"{name} carries calls out without judging their preconditions; call check in it first"
            )

    def _operation(self, key: _Key) -> Operation:
        """That of a tool. One that is gone is known as before, to whom policies name it, and is open to nobody."""
        operation = self._known[key].operation
        return operation if key in self._present else _closed(operation)

    def _listing(self) -> Operations:
        return Operations(self._operation(key) for key in list(self._known)) if self._known else _UNSEEN

    def _meant(self, asked: str) -> str:
        method, _, tool = asked.partition(" /")
        return self._name_of(tool) if method == _METHOD else asked

    def _name_of(self, tool: str) -> str:
        return self._named.get(tool, f"{_METHOD} /{tool}")


def _closed(operation: Operation) -> Operation:
    return operation._replace(guards=("",))


def with_meta(result: Any, meta: Mapping[str, Any]) -> Any:
    """A result with what the contract says of it. What the contract of another server has said there is not handed on: a client would
    take it for the word of this one."""
    before = result.meta or {}
    if not meta and META_KEY not in before:
        return result
    others = {name: before[name] for name in before if name != META_KEY}
    return result.model_copy(update={"meta": {**others, **meta} or None})


def leave_refusals_out_of(logger: str) -> None:
    """Have a server not log each refusal as a crash: it is an answer."""
    logging.getLogger(logger).addFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return error is None or not all(isinstance(leaf, Refusal) for leaf in leaves_of(error))


def _headers_of(called: Called) -> dict[str, str]:
    """What a call says of itself. From the metadata only what is of the contract is taken: a login there would be anybody's."""
    said = read_headers(called.meta)
    return {**called.headers, **{name: said[name] for name in said if name.startswith(_OF_THE_CONTRACT)}}


def _beneath(error: Exception) -> BaseException:
    """What a tool has raised. A server wraps what it does not expect; what a tool itself raises from a refusal is its own."""
    is_wrapper = isinstance(error, UnexpectedToolError) or str(error).startswith("Error calling tool ")
    return error.__cause__ if is_wrapper and error.__cause__ is not None else error


def _verdict_of(pin: Pin) -> dict[str, str]:
    return {} if pin.verdict is None else {PRECONDITION_HEADER: pin.verdict}


def _told(tool: str, refusal: Refusal, pin: Pin) -> Iterator[str]:
    """What a model is told: why the call was refused, and which arguments to change to what."""
    change: dict[str, Any] = {}
    if isinstance(refusal, PreconditionFailed):
        yield "This call was not carried out: values in it that were remembered are out of date."
        change = {**pin.precondition.was} if pin.precondition else {}
    else:
        yield f"This call was not carried out. {' '.join(refusal.sentences)}"
    fixes = [one.parameters for one in refusal.suggestions]
    change = reduce(lambda before, fix: {**before, **_overlaid(before, fix)}, fixes, change)
    if change:
        yield f"Call {tool} again with the same arguments, except:"
        yield from (f"- {line}" for line in _lines(change))


def _overlaid(before: Mapping[str, Any], fix: Mapping[str, Any]) -> dict[str, Any]:
    """A fix on top of another change. What is taken away stays named."""
    return {
        name: {**before[name], **_overlaid(before[name], value)}
        if isinstance(value, Mapping) and isinstance(before.get(name), Mapping)
        else value
        for name, value in fix.items()
    }


def _lines(change: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in change.items():
        if value is None:
            yield f"leave out {above}{name}"
        elif isinstance(value, Mapping) and value:
            yield from _lines(value, f"{above}{name}.")
        else:
            yield f"set {above}{name} to {msgspec.json.encode(value).decode()}"
