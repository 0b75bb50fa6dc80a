"""Tools of an MCP server under the contract: a call sees one state, its refusal is answered, its result is stamped.

Servers of the SDK and of FastMCP share this.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from shelflife.contract.envelopes import META_KEY, Envelope, Trailed, read_headers
from shelflife.contract.errors import BadMessage
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.extras import needing
from shelflife.integrations.mcp_catalogue import METHOD, Catalogue, HasTools
from shelflife.integrations.mcp_functions import Arguments, Listed
from shelflife.server.errors import leaves_of
from shelflife.server.feedback import JSON
from shelflife.server.operations import Operation
from shelflife.server.pinning import Incoming, answer_to
from shelflife.server.pins import Pin
from shelflife.server.policies import PreconditionFailed, Refusal, Rejected
from shelflife.server.provider import Provider

with needing("mcp"):
    from mcp.server.lowlevel import Server
    from mcp.server.mcpserver.exceptions import UnexpectedToolError

__all__ = [
    "Answered",
    "Called",
    "RunsTools",
    "ToolsUnderContract",
    "beneath_of",
    "leave_refusals_out_of",
    "overrides_calls",
    "with_meta",
]

_CALLS = "tools/call"
_OF_THE_CONTRACT = "contract-"
_DONE, _FAILED = 200, 400
_MAY_BE_DONE = (
    "Values in this call that were remembered are out of date, so it was not carried out to its end."
    " The server had begun it before: whether a part of it was done, or all, is not known."
)
"""Without a verdict: a client that hears of a failed precondition takes it that nothing was done, and calls again."""

Result = TypeVar("Result")


class Called(NamedTuple):
    """One call of a tool."""

    name: str
    arguments: Mapping[str, Any]
    meta: object
    """The metadata of the request."""

    headers: Mapping[str, str]
    """Those of the HTTP request that it came by, if it did; by lower-case name."""


class Answered(NamedTuple, Generic[Result]):
    """What becomes of a call."""

    result: Result | None
    """That of the tool; None when it is refused."""

    error: str = ""
    """What a model is told of the refusal."""

    meta: Mapping[str, Any] = {}
    """What goes into the metadata of the result."""


class RunsTools(HasTools, Protocol):
    """A server of some framework, which runs its tools."""

    def is_finished(self, result: Any) -> bool:
        """Whether a tool was carried out, and has not only asked for something."""

    def is_meant(self, error: Exception) -> bool:
        """Whether it is an error that a tool tells its caller, and no crash."""


class _Calling:
    """A call that is under way."""

    def __init__(self, tool: str, arguments: Mapping[str, Any]) -> None:
        self.tool, self.arguments = tool, arguments
        self.operation: Operation | None = None
        """That of the tool which the server has found for it."""


class _Request:
    """What has become of one request so far. Something that stands before the tools may call them more than once for it."""

    def __init__(self, *, may_be_done: bool = False) -> None:
        self.of_error: dict[str, Any] = {}
        """Metadata for an error that a tool has raised. The server makes a result of that outside of all that stands before tools."""
        self.may_be_done = may_be_done
        """Whether a tool has run for it, or for what it goes on with, and was not refused."""
        self.told: list[Mapping[str, Any]] = []
        """The metadata of all that was answered to it."""

    def answered(self, answered: "Answered[Result]") -> "Answered[Result]":
        """Note what is told."""
        self.told.append(answered.meta)
        return answered


class ToolsUnderContract:
    """Runs the tools of one server."""

    def __init__(
        self,
        provider: Provider,
        server: RunsTools,
        beneath: Server[Any],
        checked: Collection[str],
        operations: Mapping[str, str] | None,
        fixes: Collection[str] | None,
    ) -> None:
        """`beneath` is what the server stands on. The rest is as `install` has it."""
        self._provider, self._server, self._beneath = provider, server, beneath
        self._calling: ContextVar[_Calling | None] = ContextVar(f"shelflife_calling_{id(self)}", default=None)
        self._request: ContextVar[_Request | None] = ContextVar(f"shelflife_request_{id(self)}", default=None)
        self.catalogue = Catalogue(provider, server, self._check, checked, operations, fixes)
        self._plain = beneath.get_request_handler(_CALLS)
        if self._plain is not None:
            beneath.add_request_handler(_CALLS, self._plain.params_type, self._handle)

    def are_reached_by(self, *packages: str) -> bool:
        """Whether calls come to the server's own handler through nothing but middleware of these packages."""
        entry = self._beneath.get_request_handler(_CALLS)
        if entry is None or self._plain is None or entry.handler != self._handle:
            return False
        ways = [type(one).__module__ for one in self._beneath.middleware]
        ways += [getattr(self._plain.handler, "__module__", "")]
        return all(module.startswith(tuple(f"{package}." for package in packages)) for module in ways)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """While the server runs. Policies are held to its tools when it starts, and the provider's files are closed when it ends."""
        await self.catalogue.be_ready()
        self._provider.begin_life()
        try:
            yield
        finally:
            self._provider.end_life()

    def _check(self, operation: Operation, arguments: Arguments, values: Mapping[str, Any]) -> None:
        """Right before a tool runs."""
        calling = self._calling.get()
        if (
            calling is None
        ):  # it was not called as clients call it, and there is nothing to judge but its arguments
            if violations := self._provider.violations(arguments.given(values, values), operation.name):
                raise Rejected(violations, self._provider.state)
            return
        calling.operation = calling.operation or operation
        is_called = calling.operation.name == operation.name
        given = arguments.given(values, calling.arguments)
        self._provider.check(given, None if is_called else operation.name)

    async def _handle(self, context: Any, params: Any) -> Any:
        """Around the server's own handler."""
        # An answer to what a tool has asked for: that has run up to there. A client takes all rounds for one call, and would begin with
        # the first again.
        is_later_round = params.input_responses is not None or params.request_state is not None
        request = _Request(may_be_done=is_later_round)
        before = self._request.set(request)
        try:
            result: Any = await self._plain.handler(context, params)  # type: ignore[union-attr] # else this is not called
        finally:
            self._request.reset(before)
        before_it: Any = getattr(result, "meta", None) or {}
        if META_KEY not in before_it:
            is_error = getattr(result, "is_error", False)
            return with_meta(result, request.of_error) if request.of_error and is_error else result
        # Something before the tools may answer by itself, with a result that was told to another client: that says nothing to this one.
        is_its_own = any(before_it[META_KEY] == told.get(META_KEY) for told in request.told)
        return result if is_its_own else _without_contract(result)

    def about_to_run(self, tool: Listed) -> Callable[..., Any] | None:
        """A tool was found, for a call or by whoever runs it past all that stands before it. Gives what it is to run in place of its
        function, if it is checked."""
        calling, known = self._calling.get(), self.catalogue.know(tool)
        if calling is not None and calling.operation is None and calling.tool == tool.name:
            calling.operation = known.operation
        self.catalogue.be_able_to_check(tool)
        return known.function

    async def call(self, called: Called, run: Callable[[], Awaitable[Result]]) -> Answered[Result]:
        """Run a tool under the contract. What else it raises is its own."""
        provider, is_inner = self._provider, self._calling.get() is not None
        await self.catalogue.be_ready(called.name)
        try:
            # What a client asks is about the tool that it calls, and not about those that are called by that.
            incoming = Incoming(provider, METHOD, {} if is_inner else _headers_of(called))
        except BadMessage as error:
            return Answered(None, str(error))
        calling = _Calling(called.name, called.arguments)
        pin = Pin()
        pin.find = lambda: calling.operation
        await incoming.pin(pin)
        pin.headers = partial(_headers_of, called)
        with suppress(TypeError, ValueError, RecursionError):  # a tool may call another with any objects
            pin.hear(msgspec.json.encode(called.arguments))
        request = self._request.get() or _Request()
        request.of_error = {}
        tokens = provider.pinned.set(pin), self._calling.set(calling)
        try:
            result = await run()
        except Exception as error:
            failure = pin.failure_in(beneath_of(error))
            if is_inner:
                raise
            if isinstance(failure, PreconditionFailed) and request.may_be_done:
                return Answered(None, _MAY_BE_DONE)
            if failure is not None:
                return request.answered(self._refused(called.name, failure, pin))
            request.may_be_done = True
            if pin.has_checked and self._server.is_meant(error):
                request.of_error = self._stamp(pin, is_error=True)
            raise
        finally:
            pin.is_over = True
            provider.pinned.reset(tokens[0])
            self._calling.reset(tokens[1])
        request.may_be_done = True
        if not self._server.is_finished(result):  # it is called once more, and only then carried out
            return Answered(result)
        meta = self._stamp(pin, is_error=bool(getattr(result, "is_error", False)))
        return request.answered(Answered(result, meta=meta))

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
        # An error is stamped though that be no news: without, it would be taken for one that a remembered value has caused.
        if pin.shown.stamp.members and (pin.has_checked if is_error else pin.may_be_stamped(status)):
            pin.shown.counts.stamped += 1
            body = msgspec.json.decode(b"{" + pin.shown.stamp.members + b"}")
            headers |= dict(pin.shown.stamp.beside)
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
            pin.shown.counts.count("preconditions", "unjudged")
            apps.warn_once(
                f"{name} carries calls out without judging their preconditions; call check in it first"
            )


def with_meta(result: Any, meta: Mapping[str, Any]) -> Any:
    """A result with what the contract says of it. What the contract of another server has said there is not handed on: a client would
    take it for the word of this one."""
    before = result.meta or {}
    if not meta and META_KEY not in before:
        return result
    others = {name: before[name] for name in before if name != META_KEY}
    return result.model_copy(update={"meta": {**others, **meta} or None})


def _without_contract(result: Any) -> Any:
    """A result without what the contract has said of it, in its metadata and at the end of an error's text."""
    content = [
        one.model_copy(update={"text": Trailed.from_text(one.text).text}) if hasattr(one, "text") else one
        for one in result.content
    ]
    return with_meta(result.model_copy(update={"content": content}), {})


def overrides_calls(extension: Any, base: Any) -> bool:
    """Whether an extension stands before calls, which its base lets pass."""
    return type(extension).intercept_tool_call is not base.intercept_tool_call


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


def beneath_of(error: Exception) -> BaseException:
    """What a tool has raised. A server wraps what it does not expect; what a tool itself raises from a refusal is its own, unless it
    words that just as the server would."""
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
