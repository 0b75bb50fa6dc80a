"""A memory around MCP tools that LangChain's adapters load: one interceptor.

client = MultiServerMCPClient({"billing": {"transport": "http", "url": "https://billing.example/mcp"}})
client.tool_interceptors.append(MemoryInterceptor(client, Memory()))

It is for `langchain-mcp-adapters`, of which nothing is imported: they need an older SDK of MCP than other integrations do.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from shelflife.client.asking import Question, Reply
from shelflife.client.channels import MCP
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome, read_outcome
from shelflife.client.tooling import Tools
from shelflife.integrations.mcp_results import answer_in, read_result, uri_of
from shelflife.integrations.taking import takes

__all__ = ["MemoryInterceptor"]

_log = logging.getLogger("shelflife.memory")

_NAMELESS = "unknown"
"""What the adapters call the server of tools that were loaded from a session, without its name."""


class MemoryInterceptor:
    """Calls tools with what is remembered for their arguments, and learns from their results.

    What is remembered belongs to the server by the name that it has in the client, as in `mcp://billing`. `guard` says what may be written
    into arguments; with None the memory only learns. The adapters hand no metadata to a server, so no call asks for a condition.
    """

    def __init__(self, client: Any, memory: Memory, *, guard: Guard | None = MCP.guard) -> None:
        takes("a MemoryInterceptor takes the client of the adapters, and then a Memory", (memory, Memory))
        if not callable(getattr(client, "get_resources", None)):
            raise TypeError("a MemoryInterceptor takes a MultiServerMCPClient first, which has get_resources")
        self._client, self._memory, self._guard = client, memory, guard
        self._tools: dict[str, Tools] = {}
        self._has_warned = False

    async def __call__(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Around a call of a tool."""
        if request.server_name == _NAMELESS:
            self._warn_once()
            return await handler(request)

        async def run(arguments: dict[str, Any], _: object) -> Any:
            return await handler(request.override(args=arguments))

        return await self._tools_of(request.server_name).call_async(request.name, request.args, run)

    def _tools_of(self, server: str) -> Tools:
        tools = self._tools.get(server)
        if tools is None:
            root = _root_of(server)
            ask, read = partial(self._ask, server, root), partial(self._read, root)
            tools = Tools(self._memory, root, guard=self._guard, compact=False, ask=ask, read=read)
            self._tools[server] = tools
        return tools

    async def _ask(self, server: str, root: str, question: Question) -> Reply | None:
        """Ask by reading a resource, as the client does it."""
        with suppress(Exception):  # whatever it says, it does not answer
            [answer] = await self._client.get_resources(server, uris=[uri_of(question, root)])
            return answer_in(answer.as_string())
        return None

    def _read(self, root: str, outcome: Any, *, is_error: bool = False) -> Outcome:
        """A result of MCP, or what another interceptor has made of it."""
        if isinstance(outcome, BaseException) or hasattr(outcome, "isError"):
            return read_result(outcome, self._memory, root, is_error=is_error)
        return read_outcome(outcome, is_error=is_error)

    def _warn_once(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "nothing is remembered for tools that were loaded from a session: the adapters do not tell of which server"
                " they are; load them by MultiServerMCPClient.get_tools, or give load_mcp_tools the server_name"
            )


def _root_of(server: str) -> str:
    """Where the contract of a server lives, by its name in the client. No two names have the same root, which knows no capitals."""
    plain = "abcdefghijklmnopqrstuvwxyz0123456789-"
    escaped = (one if one in plain else "".join(f"_{byte:02x}" for byte in one.encode()) for one in server)
    return f"mcp://{''.join(escaped)}"
