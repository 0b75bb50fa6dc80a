"""Tools of an MCP server under the contract: a call sees one state, its refusal is answered, its result is stamped.

Servers of the SDK and of FastMCP share this.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from shelflife.contract.envelopes import Envelope, read_headers
from shelflife.contract.errors import BadMessage
from shelflife.contract.names import shown
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.extras import needing
from shelflife.server.errors import UsageError, leaves_of
from shelflife.server.feedback import JSON
from shelflife.server.models import DICTIONARY, Reader
from shelflife.server.operations import Operation, Operations
from shelflife.server.pinning import Incoming, answer_to
from shelflife.server.pins import Pin
from shelflife.server.policies import PreconditionFailed, Refusal
from shelflife.server.provider import Provider

with needing("mcp"):
    from mcp.server.mcpserver.exceptions import UnexpectedToolError
    from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata

__all__ = ["Answered", "Called", "Listed", "ToolsUnderContract", "leave_refusals_out_of", "metadata_of"]

_METHOD = "CALL"
_OF_THE_CONTRACT = "contract-"
_DONE, _FAILED = 200, 400
_UNSEEN = Operations(opaque=[""])
"""Of a server whose tools nobody has listed yet."""

Result = TypeVar("Result")


class Listed(NamedTuple):
    """A tool that a server has."""

    name: str
    guards: tuple[str, ...] = ()
    """What stands before it, or might, that does not stand before the contract's questions too."""

    metadata: FuncMetadata | None = None
    """How its arguments are read before it runs; None when it is given them as they were sent."""

    nulls: frozenset[str] = frozenset()
    """The arguments that are null where they are left out, for a tool that has no metadata."""

    def read(self, arguments: Mapping[str, Any]) -> Any:
        """What it is given. May raise anything."""
        of = self.metadata
        return {**arguments} if of is None else of.arg_model.model_validate(of.pre_parse_json({**arguments}))

    def reader(self, *, is_checked: bool) -> Reader | None:
        """The same, with what is known of how that goes. A tool that checks its arguments by name names those too that were left out."""
        if is_checked and self.metadata is None:
            return DICTIONARY
        if is_checked and self.metadata is not None:
            reader = Reader.of_pydantic(self.metadata.arg_model)
            return None if reader is None else reader._replace(convert=self.read)
        fields = {} if self.metadata is None else self.metadata.arg_model.model_fields
        nulls = self.nulls | {of.alias or name for name, of in fields.items() if of.default is None}
        return DICTIONARY._replace(convert=lambda sent: {**dict.fromkeys(nulls), **sent})


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


class ToolsUnderContract:
    """The tools of one server."""

    def __init__(
        self,
        provider: Provider,
        list_tools: Callable[[], Awaitable[list[Listed]]],
        *,
        checked: Collection[str] = (),
        operations: Mapping[str, str] | None = None,
        fixes: Collection[str] | None = None,
    ) -> None:
        """`checked` and `fixes` are names of tools, and `operations` says of some which operation they are: see `install`."""
        for names in (checked, fixes or ()):
            if isinstance(names, str):
                raise UsageError(f"{shown(names)} is one text; give a list of tools")
        self._provider = provider
        self._list_tools = list_tools
        self._checked = frozenset(checked)
        self._named = {tool: Operation.from_name(name).name for tool, name in (operations or {}).items()}
        self._known: dict[str, tuple[Listed, Operation]] = {}
        self._is_calling = ContextVar(f"shelflife_calling_{id(self)}", default=False)
        provider.apps.attach(lambda: self._operations() if self._known else _UNSEEN)
        told = None if fixes is None else [self._name_of(tool) for tool in fixes]
        self._disclosed = provider.apps.disclosed_fixes(self._operations, told)

    def disclosed(self, asked: str) -> Operation | None:
        """The operation of a tool that a client names, if its fixes may be told without a call."""
        method, _, tool = asked.partition(" /")
        return self._disclosed(self._name_of(tool) if method == _METHOD else asked)

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
        if self._known and (tool is None or tool in self._known):
            return
        known = {one.name: (one, self._operation_of(one)) for one in await self._list_tools()}
        missing = {*self._checked, *self._named} - known.keys()
        if missing and not self._known:  # a tool that is taken away later is nobody's mistake
            raise UsageError(f"install names the tool {shown(min(missing))}, and the server has no such tool")
        self._known = known
        self._provider.apps.are_held = False

    async def call(self, called: Called, run: Callable[[], Awaitable[Result]]) -> Answered[Result]:
        """Run a tool under the contract. What else it raises is its own."""
        provider, is_inner = self._provider, self._is_calling.get()
        await self.be_ready(called.name)
        if called.name not in self._known:
            return Answered(await run())  # which says that there is no such tool
        tool, operation = self._known[called.name]
        try:
            # What a client asks is about the tool that it calls, and not about those that are called by that.
            incoming = Incoming(provider, _METHOD, {} if is_inner else _headers_of(called))
        except BadMessage as error:
            return Answered(None, str(error))
        pin = await incoming.pinned(lambda: operation)
        pin.headers = partial(_headers_of, called)
        pin.body += msgspec.json.encode(called.arguments)
        tokens = provider.pinned.set(pin), self._is_calling.set(True)
        try:
            if called.name in self._checked:
                try:
                    given = tool.read(called.arguments)
                except Exception as error:  # noqa: BLE001 - validators may raise anything
                    return Answered(None, f"Error executing tool {called.name}: {error}")
                provider.check(given)
            result = await run()
        except Exception as error:
            failure = pin.failure_in(_beneath(error))
            if failure is None or is_inner:
                raise
            return self._refused(called.name, failure, pin)
        finally:
            pin.is_over = True
            provider.pinned.reset(tokens[0])
            self._is_calling.reset(tokens[1])
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
            apps.warn_once(
                f"{name} carries calls out without judging their preconditions; call check in it first"
            )

    def _operations(self) -> Operations:
        return Operations(operation for _, operation in self._known.values())

    def _name_of(self, tool: str) -> str:
        return self._named.get(tool, f"{_METHOD} /{tool}")

    def _operation_of(self, tool: Listed) -> Operation:
        method, _, template = self._name_of(tool.name).partition(" ")
        body = tool.reader(is_checked=tool.name in self._checked)
        return Operation.of_route(
            method, template, guards=tool.guards, is_stamped=not tool.guards, endpoint=tool.name, body=body
        )


def metadata_of(function: Callable[..., Any], taken: Collection[str]) -> FuncMetadata:
    """How arguments are read for a function that takes these of them; the others it is given in another way."""
    others = [name for name in inspect.signature(function).parameters if name not in taken]
    return func_metadata(function, skip_names=others, structured_output=False)


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
