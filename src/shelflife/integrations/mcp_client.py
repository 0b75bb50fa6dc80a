"""A memory behind an MCP client: `memory_client(client, memory, root="mcp://billing")`. Nothing else in the user's code changes.

The client may be one of the SDK (`mcp.Client`, or a bare `ClientSession`) or of FastMCP: they are used by the names that all of them have.
"""

import inspect
import logging
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast

from shelflife.client.asking import Question, Reply
from shelflife.client.channels import MCP
from shelflife.client.entries import Root
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome
from shelflife.client.pauses import Pauses, apart
from shelflife.client.tooling import Takes, Tools
from shelflife.contract.envelopes import CHANGES_URI, META_KEY
from shelflife.extras import needing
from shelflife.integrations.mcp_results import answer_in, read_result, uri_of

with needing("mcp"):
    import anyio
    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.client.subscriptions import listen
    from mcp_types import (
        EmptyResult,
        ResourceUpdatedNotification,
        SubscribeRequest,
        SubscribeRequestParams,
        UnsubscribeRequest,
        UnsubscribeRequestParams,
    )
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["following", "memory_client"]

_log = logging.getLogger("shelflife.memory")

_SEND_ONCE = "mcp.", "fastmcp.", "agents."
"""The packages whose clients do, unless they are told otherwise."""

_OWN = "_client", "_tools"
_NAMES = "name", "tool_name"
"""What clients call the tool, where one behind a wrapper is given it by name."""

_LONGEST_START_S = 5.0
"""So long a block waits for the server's first word: it may not answer at all."""

_LONGEST_END_S = 2.0
_PAUSES = Pauses(0.1, 30.0)
_HOLDS_S = 5.0
"""A line that has held for so long is a good one. A server may take up each, and end it at once."""

Client = TypeVar("Client")


def memory_client(
    client: Client,
    memory: Memory,
    *,
    root: Root,
    guard: Guard | None = MCP.guard,
    conditional: bool = MCP.conditional,
) -> Client:
    """The client, with a memory behind its calls of tools. It is used like the client itself, also in `async with`.

    - `root` is what you call the server, as in `mcp://billing`; what is remembered belongs to it. What a server calls itself does not count.
    - `guard` says what may be written into arguments; with None the memory only learns.
    - `conditional`: a call with remembered values asks the server not to carry it out if something that they rest on has moved. It is then
      amended anew and made again, before anybody sees anything.
    """
    if not callable(getattr(client, "call_tool", None)):
        raise TypeError("memory_client takes a client of MCP, which has a call_tool, and after it a Memory")
    _places_of(inspect.signature(client.call_tool))  # type: ignore[attr-defined] # as was seen
    return cast("Client", _MemoryClient(client, memory, root=root, guard=guard, conditional=conditional))


@asynccontextmanager
async def following(client: object) -> AsyncIterator[None]:
    """While a block runs, the memory behind a client hears when something moves at the server, and is up to date before it is asked.

    `client` is what `memory_client` gave, and is connected.
    """
    if not isinstance(client, _MemoryClient):
        raise TypeError("following takes a client that memory_client has given")
    has_begun, failed = anyio.Event(), None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.follow, has_begun)
        with anyio.move_on_after(_LONGEST_START_S):
            await has_begun.wait()
        try:
            yield
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - it is the block's own, and no part of a group
            failed = error
        finally:
            tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed


class _MemoryClient:
    """What `memory_client` gives. All that is not a call of a tool is the client's own."""

    def __init__(
        self, client: Any, memory: Memory, *, root: Root, guard: Guard | None, conditional: bool
    ) -> None:
        self._client = client
        self._tools = Tools(
            memory,
            root,
            guard=guard,
            conditional=conditional,
            compact=MCP.compact,
            ask=self._ask,
            read=self._read,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_client" or name.startswith(
            "__"
        ):  # whoever copies it looks for such before it has a client
            raise AttributeError(name)
        own = getattr(self._client, name)
        # Clients of FastMCP have another method that calls a tool.
        return partial(self._call, own) if name == "call_tool_mcp" else own

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value) if self._is_own(name) else setattr(self._client, name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name) if self._is_own(name) else delattr(self._client, name)

    def _is_own(self, name: str) -> bool:
        """Whether it is found here, and not at the client."""
        return name in _OWN or hasattr(_MemoryClient, name)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> Any:
        return await self._client.__aexit__(*exception)

    async def call_tool(self, *args: Any, **options: Any) -> Any:
        """As the client does it, with what is remembered for the arguments."""
        if not hasattr(self._client, "call_tool_mcp"):
            return await self._call(self._client.call_tool, *args, **options)
        # A client of FastMCP raises what a tool calls an error, and then it has no metadata any more.
        is_raising = options.pop("raise_on_error", True)
        options["raise_on_error"] = False
        result = await self._call(self._client.call_tool, *args, **options)
        if is_raising and result.is_error:
            from fastmcp.exceptions import ToolError

            texts = [block.text for block in result.content[:1] if hasattr(block, "text")]
            name = args[0] if args else options.get("name")
            raise ToolError(texts[0] if texts else f"Tool {name!r} returned an error")
        return result

    async def _call(self, call: Any, *args: Any, **options: Any) -> Any:
        given = _Given.to(call, args, options)
        name, arguments, meta = given.tool, given.value("arguments"), given.value("meta") or {}

        async def run(amended: dict[str, Any], headers: Mapping[str, str]) -> Any:
            now = given.having("arguments", amended or (None if arguments is None else {}))
            if headers and given.takes_meta:
                now = now.having("meta", {**meta, META_KEY: dict(headers)})
            return await call(*now.args, **now.options)

        takes = Takes(judged_by=_judged_by(self._client, name))
        return await self._tools.call_async(name, arguments or {}, run, takes)

    async def _ask(self, question: Question) -> Reply | None:
        """Ask through the session that the client has. A bare session is its own."""
        session = getattr(self._client, "session", self._client)
        with suppress(Exception), anyio.fail_after(question.within_s):  # whatever it says, it does not answer
            [contents] = (await session.read_resource(uri_of(question, self._tools.root))).contents
            return answer_in(contents.text)
        return None

    def _read(self, outcome: Any, *, is_error: bool = False) -> Outcome:
        memory, root = self._tools.memory, self._tools.root
        return read_result(outcome, memory, root, is_error=is_error, is_only=self._sends_once)

    @property
    def _sends_once(self) -> bool:
        """Whether the client is one that is known to send a call once. One of the OpenAI Agents SDK can be told to do it again."""
        client = self._client
        calls = [getattr(client, name) for name in ("call_tool", "call_tool_mcp") if hasattr(client, name)]
        are_plain = all(
            one.__module__.startswith(_SEND_ONCE) and not hasattr(one, "__wrapped__") for one in calls
        )
        return are_plain and getattr(client, "max_retry_attempts", 0) == 0

    async def follow(self, has_begun: anyio.Event) -> None:
        """Refresh the memory whenever the server says that something has moved, until this is cancelled."""
        pause_s = 0.0
        while True:
            pause_s, good_at = _PAUSES.after(pause_s), math.inf
            try:
                async with self._cues() as cues:
                    good_at = anyio.current_time() + _HOLDS_S
                    await self._refresh()  # what moves from now on is told; what has moved before is asked
                    has_begun.set()
                    async for _ in cues:
                        good_at = 0.0
                        await self._refresh()
            except Exception:  # noqa: BLE001 - whatever ends it, it is begun anew
                _log.info("what moves at %s is not heard", self._tools.root, exc_info=True)
            has_begun.set()  # the block is not kept waiting for a server that cannot tell
            if anyio.current_time() >= good_at:
                pause_s = _PAUSES.first_s
            await anyio.sleep(apart(pause_s))

    async def _refresh(self) -> None:
        await self._tools.memory.refresh_async(self._tools.root, self._ask)

    @asynccontextmanager
    async def _cues(self) -> AsyncIterator[AsyncIterator[object]]:
        """What the server says when something has moved. Each is only a cue: what has moved is asked."""
        session = getattr(self._client, "session", self._client)
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            async with listen(session, resource_subscriptions=[CHANGES_URI]) as heard:
                yield heard
            return
        tell, cues = anyio.create_memory_object_stream[None](1)
        with tell, cues, _hearing(session, tell) as hearing:
            request = SubscribeRequest(params=SubscribeRequestParams(uri=CHANGES_URI))
            await session.send_request(request, EmptyResult)
            try:
                yield cues
            finally:
                # Two race here: the last who leaves, and the next who comes. Whoever comes after this look subscribes after it, too.
                if hearing.followers == [tell]:
                    with suppress(Exception), anyio.move_on_after(_LONGEST_END_S, shield=True):
                        end = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=CHANGES_URI))
                        await session.send_request(end, EmptyResult)


class _Given(NamedTuple):
    """What a client's method is called with, by place and by name."""

    args: tuple[Any, ...]
    options: Mapping[str, Any]
    places: tuple[str, ...]
    """What stands in which place."""

    takes_meta: bool

    @classmethod
    def to(cls, call: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Self:
        """Raises what the method itself would when it does not take that."""
        signature = inspect.signature(call)
        signature.bind(*args, **options)
        places = _places_of(signature)
        # What else is handed on by place may be metadata already.
        hands_on = _has(signature, inspect.Parameter.VAR_KEYWORD) and len(args) <= len(places)
        return cls(args, options, places, hands_on or "meta" in signature.parameters)

    @property
    def tool(self) -> Any:
        """It is what all clients take first, whatever they call that."""
        if self.args:
            return self.args[0]
        for name in (*self.places[:1], *_NAMES):
            if name in self.options:
                return self.options[name]
        raise TypeError("a call_tool that does not say what it takes is given the name of the tool first")

    def value(self, name: str) -> Any:
        """What is given under a name; None when nothing is."""
        by_place = dict(zip(self.places, self.args, strict=False))
        return by_place.get(name, self.options.get(name))

    def having(self, name: str, value: Any) -> Self:
        """The same with another value, which is given as it was: what is behind a wrapper may call it something else."""
        if name in self.options or name not in self.places[: len(self.args) + 1]:
            return self._replace(options={**self.options, name: value})
        at = self.places.index(name)
        return self._replace(args=(*self.args[:at], value, *self.args[at + 1 :]))


def _has(signature: inspect.Signature, kind: object) -> bool:
    return any(one.kind is kind for one in signature.parameters.values())


def _places_of(signature: inspect.Signature) -> tuple[str, ...]:
    """What a method that calls tools takes by place. A wrapper that hands on whatever it is given takes the tool and its arguments."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    places = tuple(one.name for one in signature.parameters.values() if one.kind in kinds)
    if "arguments" in signature.parameters:
        return places
    if _has(signature, inspect.Parameter.VAR_POSITIONAL) and len(places) < 2:
        return (*(places or _NAMES[:1]), "arguments")
    if _has(signature, inspect.Parameter.VAR_KEYWORD):
        return places
    raise TypeError(f"memory_client takes a client whose call_tool takes `arguments`, and not {signature}")


def _judged_by(client: Any, tool: str) -> str:
    """Who is shown the arguments that the model gave, before the tool is called: a client of the OpenAI Agents SDK can be told to."""
    if getattr(client, "tool_input_guardrails", None):
        return "a guardrail of the client"
    asking: Any = getattr(client, "_needs_approval_policy", False)
    asks = asking.get(tool) if isinstance(asking, Mapping) else asking
    return "whoever approves the call (require_approval)" if asks else ""


class _Hearing:
    """Hands on what a session of 2025-11-25 hears, and tells all who follow it. A session has one place for a handler."""

    def __init__(self, hand_on: Any) -> None:
        self.hand_on = hand_on
        self.followers: list[MemoryObjectSendStream[None]] = []

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification) and str(message.params.uri) == CHANGES_URI:
            for follower in self.followers:
                with suppress(anyio.WouldBlock):  # there is a cue already that nobody has followed up
                    follower.send_nowait(None)
        await self.hand_on(message)


@contextmanager
def _hearing(session: Any, follower: "MemoryObjectSendStream[None]") -> Iterator[_Hearing]:
    """While one more follows a session."""
    hearing = session._message_handler
    if not isinstance(hearing, _Hearing):
        hearing = session._message_handler = _Hearing(hearing)
    hearing.followers.append(follower)
    try:
        yield hearing
    finally:
        hearing.followers.remove(follower)
        # what somebody else has put around it since stays, and hands on
        if not hearing.followers and session._message_handler is hearing:
            session._message_handler = hearing.hand_on
