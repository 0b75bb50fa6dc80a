"""A memory behind an MCP client: `memory_client(client, memory, root="mcp://billing")`. Nothing else in the user's code changes.

The client may be one of the SDK (`mcp.Client`, or a bare `ClientSession`) or of FastMCP: they are used by the names that all of them have.
"""

import dataclasses
import inspect
import logging
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar, cast

import msgspec

from shelflife.client.asking import LARGEST_ANSWER, Question, Reply
from shelflife.client.channels import MCP
from shelflife.client.entries import Root
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome, reply_in_meta, reply_in_text, reply_of
from shelflife.client.pauses import Pauses, apart
from shelflife.client.tooling import Takes, Tools
from shelflife.contract.envelopes import CHANGES_URI, META_KEY, Envelope, QuestionUri
from shelflife.contract.positions import AT_HEADER
from shelflife.extras import needing

with needing("mcp"):
    import anyio
    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.client.subscriptions import listen
    from mcp.shared.exceptions import MCPError
    from mcp_types import (
        URL_ELICITATION_REQUIRED,
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
        """The tool is what a client takes first, whatever it calls that; `arguments` and `meta` are so called by all of them."""
        bound = inspect.signature(call).bind(*args, **options)
        name = next(iter(bound.arguments.values()))
        arguments, meta = bound.arguments.get("arguments"), bound.arguments.get("meta") or {}

        async def run(amended: dict[str, Any], headers: Mapping[str, str]) -> Any:
            now = inspect.BoundArguments(bound.signature, bound.arguments.copy())
            now.arguments["arguments"] = amended or (None if arguments is None else {})
            if headers:
                now.arguments["meta"] = {**meta, META_KEY: dict(headers)}
            return await call(*now.args, **now.kwargs)

        takes = Takes(judged_by=_judged_by(self._client, name))
        return await self._tools.call_async(name, arguments or {}, run, takes)

    async def _ask(self, question: Question) -> Reply | None:
        """Ask through the session that the client has. A bare session is its own."""
        session = getattr(self._client, "session", self._client)
        path, _, query = question.url.removeprefix(self._tools.root).partition("?")
        uri = QuestionUri(path, query, question.body, question.headers.get(AT_HEADER, "")).text
        with suppress(Exception), anyio.fail_after(question.within_s):  # whatever it says, it does not answer
            [contents] = (await session.read_resource(uri)).contents
            answer = contents.text.encode()
            if len(answer) <= LARGEST_ANSWER:
                return reply_of(msgspec.json.decode(answer, type=Envelope))
        return None

    def _read(self, outcome: Any, *, is_error: bool = False) -> Outcome:
        """What a result says in its metadata or, where that has got lost on the way, at the end of an error's text.

        Nowhere else: what a tool hands on may have been written by anybody. So may an error, once it is known that metadata gets through.
        """
        if isinstance(outcome, BaseException):
            is_pause = isinstance(outcome, MCPError) and outcome.code == URL_ELICITATION_REQUIRED
            return Outcome(outcome, None, is_error=not is_pause)  # else a human has to do something first
        is_error = is_error or getattr(outcome, "is_error", False)
        reply = reply_in_meta(getattr(outcome, "meta", None), is_error=is_error)
        in_metadata = self._tools.memory.heard_in_metadata
        if reply is not None:
            in_metadata.add(self._tools.root)
        if not is_error:
            return Outcome(outcome, reply, is_only=self._sends_once)
        shown = []
        for block in outcome.content:
            text, in_text = reply_in_text(getattr(block, "text", ""))
            if in_text is not None:
                block = block.model_copy(update={"text": text})
                reply = reply if self._tools.root in in_metadata else in_text
            shown.append(block)
        if shown == outcome.content:
            return Outcome(outcome, reply, is_error, is_only=self._sends_once)
        is_model = hasattr(outcome, "model_copy")
        without = (
            outcome.model_copy(update={"content": shown})
            if is_model
            else dataclasses.replace(outcome, content=shown)
        )
        return Outcome(without, reply, is_error, is_only=self._sends_once)

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
