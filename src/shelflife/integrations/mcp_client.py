"""A memory behind an MCP client: `memory_client(client, memory, root="mcp://billing")`. Nothing else in the user's code changes.

The client may be one of the SDK (`mcp.Client`, or a bare `ClientSession`) or of FastMCP: they are used by the names that all of them have.
"""

import dataclasses
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar, cast

import msgspec

from shelflife.client.asking import Question, Reply
from shelflife.client.channels import MCP
from shelflife.client.entries import Root
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome, reply_of
from shelflife.client.tooling import Tools
from shelflife.contract.envelopes import CHANGES_URI, META_KEY, Envelope, QuestionUri, Trailed
from shelflife.contract.positions import AT_HEADER
from shelflife.extras import needing

with needing("mcp"):
    import anyio
    from anyio.abc import TaskStatus
    from mcp.client.subscriptions import listen
    from mcp_types import EmptyResult, ResourceUpdatedNotification, SubscribeRequest, SubscribeRequestParams
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["following", "memory_client"]

_log = logging.getLogger("shelflife.memory")

_LARGEST_ANSWER = 8 * 1024 * 1024
_LONGEST_ANSWER_S = 5.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0

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
    return cast("Client", _MemoryClient(client, memory, root=root, guard=guard, conditional=conditional))


@asynccontextmanager
async def following(client: object) -> AsyncIterator[None]:
    """While a block runs, the memory behind a client hears when something moves at the server, and is up to date before it is asked.

    `client` is what `memory_client` gave, and is connected.
    """
    if not isinstance(client, _MemoryClient):
        raise TypeError("following takes a client that memory_client has given")
    async with anyio.create_task_group() as tasks:
        await tasks.start(client.follow)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


class _MemoryClient:
    """What `memory_client` gives. All that is not a call of a tool is the client's own."""

    def __init__(
        self, client: Any, memory: Memory, *, root: Root, guard: Guard | None, conditional: bool
    ) -> None:
        self._client = client
        self._has_metadata = False
        """Whether metadata has come through from this server."""
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
        # Clients of FastMCP have another method that calls a tool.
        own = getattr(self._client, name)
        return partial(self._called, own) if name == "call_tool_mcp" else own

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> Any:
        return await self._client.__aexit__(*exception)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *args: Any, **options: Any
    ) -> Any:
        """As the client does it, with what is remembered for the arguments."""
        if not hasattr(self._client, "call_tool_mcp"):
            return await self._called(self._client.call_tool, name, arguments, *args, **options)
        # A client of FastMCP raises what a tool calls an error, and then it has no metadata any more.
        is_raising = options.pop("raise_on_error", True)
        options["raise_on_error"] = False
        result = await self._called(self._client.call_tool, name, arguments, *args, **options)
        if is_raising and result.is_error:
            from fastmcp.exceptions import ToolError

            texts = [block.text for block in result.content[:1] if hasattr(block, "text")]
            raise ToolError(texts[0] if texts else f"Tool {name!r} returned an error")
        return result

    async def _called(
        self, call: Any, name: str, arguments: Mapping[str, Any] | None = None, *args: Any, **options: Any
    ) -> Any:
        meta = options.pop("meta", None) or {}

        async def run(amended: dict[str, Any], headers: Mapping[str, str]) -> Any:
            said = {**meta, META_KEY: dict(headers)} if headers else meta
            given = amended or (None if arguments is None else {})
            return await call(name, given, *args, **options, **({"meta": said} if said else {}))

        return await self._tools.call_async(name, arguments or {}, run)

    async def _ask(self, question: Question) -> Reply | None:
        """Ask through the session that the client has. A bare session is its own."""
        session = getattr(self._client, "session", self._client)
        path, _, query = question.url.removeprefix(self._tools.root).partition("?")
        uri = QuestionUri(path, query, question.body, question.headers.get(AT_HEADER, "")).text
        with suppress(Exception), anyio.fail_after(_LONGEST_ANSWER_S):  # whatever it says, it does not answer
            [contents] = (await session.read_resource(uri)).contents
            if len(contents.text) <= _LARGEST_ANSWER:
                return reply_of(msgspec.json.decode(contents.text, type=Envelope))
        return None

    def _read(self, outcome: Any, *, is_error: bool = False) -> Outcome:
        """What a result says in its metadata or, where that has got lost on the way, at the end of an error's text.

        Nowhere else: what a tool hands on may have been written by anybody. So may an error, once it is known that metadata gets through.
        """
        envelope = Envelope.from_meta(getattr(outcome, "meta", None))
        self._has_metadata = self._has_metadata or envelope is not None
        if not (is_error or getattr(outcome, "is_error", False)):
            return Outcome(outcome, _reply(envelope))
        shown = []
        for block in outcome.content:
            trailed = Trailed.from_text(getattr(block, "text", ""))
            if trailed.envelope is not None:
                block = block.model_copy(update={"text": trailed.text})
                envelope = envelope if self._has_metadata else trailed.envelope
            shown.append(block)
        if shown == outcome.content:
            return Outcome(outcome, _reply(envelope))
        is_model = hasattr(outcome, "model_copy")
        without = (
            outcome.model_copy(update={"content": shown})
            if is_model
            else dataclasses.replace(outcome, content=shown)
        )
        return Outcome(without, _reply(envelope))

    async def follow(self, *, task_status: TaskStatus[None]) -> None:
        """Refresh the memory whenever the server says that something has moved, until this is cancelled."""
        pause_s, is_told = _FIRST_PAUSE_S, False
        while True:
            try:
                async with self._cues() as cues:
                    await self._refresh()  # after it is listened: nothing is told twice
                    pause_s = _FIRST_PAUSE_S
                    if not is_told:
                        task_status.started()
                        is_told = True
                    async for _ in cues:
                        await self._refresh()
            except Exception:  # noqa: BLE001 - whatever ends it, it is begun anew
                _log.info("what moves at %s is not heard", self._tools.root, exc_info=True)
            if not is_told:  # the block is not kept waiting for a server that cannot tell
                task_status.started()
                is_told = True
            await anyio.sleep(pause_s * random.uniform(1, 2))  # noqa: S311 - not all at once
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

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
        hand_on = session._message_handler

        async def hear(message: Any) -> None:
            if isinstance(message, ResourceUpdatedNotification) and str(message.params.uri) == CHANGES_URI:
                with suppress(anyio.WouldBlock):  # there is a cue already that nobody has followed up
                    tell.send_nowait(None)
            await hand_on(message)

        session._message_handler = hear  # which has no other place for a listener that comes later
        with tell, cues:
            try:
                request = SubscribeRequest(params=SubscribeRequestParams(uri=CHANGES_URI))
                await session.send_request(request, EmptyResult)
                yield cues
            finally:
                session._message_handler = hand_on


def _reply(envelope: Envelope | None) -> Reply | None:
    return None if envelope is None else reply_of(envelope)
