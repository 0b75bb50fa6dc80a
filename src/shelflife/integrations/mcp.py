"""The contract inside an MCP server of the SDK: `install(server, provider)`.

For a server of FastMCP there is `shelflife.integrations.fastmcp`, and for clients of either `shelflife.integrations.mcp_client`.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from shelflife.errors import ShelflifeError
from shelflife.extras import needing
from shelflife.integrations.mcp_functions import DECORATED, Listed, look_at
from shelflife.integrations.mcp_questions import answer_questions, be_the_first, headers_of
from shelflife.integrations.mcp_tools import Called, ToolsUnderContract, overrides_calls, with_meta
from shelflife.integrations.taking import takes
from shelflife.server.provider import Provider

with needing("mcp"):
    from mcp.server import MCPServer
    from mcp.server.extension import Extension
    from mcp.server.lowlevel import Server
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
    from mcp.server.mcpserver.tools import Tool, ToolManager
    from mcp_types import CallToolResult, InputRequiredResult, TextContent

__all__ = ["install"]


def install(
    server: MCPServer[Any],
    provider: Provider,
    *,
    checked: Collection[str] = (),
    operations: Mapping[str, str] | None = None,
    fixes: Collection[str] | None = None,
) -> None:
    """Give the server the contract: a tool may call `provider.check`, and clients may ask what they ask of an API.

    - `checked` are the tools whose arguments are checked right before they run, as they are given them: when all that stands
      before them has let the caller pass. All others call `provider.check` themselves, with their arguments by name.
    - `operations` says of a tool which operation it is, for policies that were written for an API:
      `{"create_order": "POST /orders"}`. Any other is `CALL /` and its name, as in `CALL /create_order`.
    - `fixes` are the tools whose fixes are told without a call. By default these are the ones with nothing before them: no
      middleware and no extension of your own, no resolver and no decorator.
    """
    takes(
        "install of integrations.mcp takes an MCPServer and a Provider",
        (server, MCPServer),
        (provider, Provider),
    )
    _Installed(server, provider, checked, operations, fixes)


class _Installed:
    def __init__(
        self,
        server: MCPServer[Any],
        provider: Provider,
        checked: Collection[str],
        operations: Mapping[str, str] | None,
        fixes: Collection[str] | None,
    ) -> None:
        beneath = server._lowlevel_server
        be_the_first(beneath)
        self._server = server
        self._provider = provider
        self._tools = ToolsUnderContract(provider, self, beneath, checked, operations, fixes)
        self._call_plain = server.call_tool
        self._plain_life = beneath.lifespan
        answer_questions(beneath, provider, self._tools.catalogue, server._subscriptions)
        beneath.lifespan = self._life
        # Inside of what turns exceptions into results, so that a refusal can be told from what else a tool raises.
        server.call_tool = self._call  # type: ignore[method-assign]

    @asynccontextmanager
    async def _life(self, beneath: Server[Any]) -> AsyncIterator[Any]:
        async with self._plain_life(beneath) as context, self._tools.life():
            yield context

    async def _call(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        request = None if context is None else context._request_context
        called = Called(name, arguments, request and request.meta, headers_of(request))
        try:
            answered = await self._tools.call(called, lambda: self._run(name, arguments, context))
        except ShelflifeError as error:
            raise UnexpectedToolError(f"Error executing tool {name}") from error
        result = answered.result
        if result is None:
            text = TextContent(type="text", text=answered.error)
            return CallToolResult(content=[text], is_error=True, _meta=dict(answered.meta) or None)
        return with_meta(result, answered.meta) if self.is_finished(result) else result

    async def _run(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> CallToolResult | InputRequiredResult:
        server = self._server
        tool = server._tool_manager.get_tool(name)
        function = tool and self._tools.about_to_run(self._as_listed(tool))
        if tool is None or function is None:
            return await self._call_plain(name, arguments, context)
        # As the server itself does it, and it was seen that it does nothing else.
        context = context or Context(mcp_server=server, subscriptions=server._subscriptions)
        checked = tool.model_copy(update={"fn": function})
        result: CallToolResult | InputRequiredResult = await checked.run(
            arguments, context, convert_result=True
        )
        return result

    async def all_tools(self, named: Collection[str]) -> list[Listed]:
        return [self._as_listed(tool) for tool in self._server._tool_manager.list_tools()]

    async def tool_for(self, context: object, name: str, version: str) -> Listed | None:
        tool = self._server._tool_manager.get_tool(name)
        return None if tool is None else self._as_listed(tool)

    def is_finished(self, result: object) -> bool:
        return isinstance(result, CallToolResult)

    def is_meant(self, error: Exception) -> bool:
        return isinstance(error, ToolError) and not isinstance(error, UnexpectedToolError)

    def _as_listed(self, tool: Tool) -> Listed:
        metadata, seen, obstacle = tool.fn_metadata, look_at(tool.fn), ""
        if seen.has_decorator:
            obstacle = DECORATED
        elif not self._runs_as_usual or type(tool) is not Tool:
            obstacle = "the server runs its tools in a way of its own"
        is_open = seen.is_plain and not tool.resolved_params and not obstacle and self._is_open
        return Listed(
            tool.name,
            function=tool.fn,
            guards=() if is_open else ("",),
            obstacle=obstacle,
            schema=tool.parameters,
            model=lambda: metadata.arg_model,
            parsed=metadata.pre_parse_json,
        )

    @property
    def _runs_as_usual(self) -> bool:
        """Whether a tool is found and run by nothing but the SDK's own."""
        tools = self._server._tool_manager
        is_usual = type(tools) is ToolManager and not vars(tools).keys() & {"call_tool", "get_tool"}
        return is_usual and getattr(self._call_plain, "__func__", None) is MCPServer.call_tool

    @property
    def _is_open(self) -> bool:
        """Whether calls come as far as that without having passed anything that may stop them."""
        server = self._server
        return (
            self._tools.are_reached_by("mcp")
            and vars(server).get("call_tool") == self._call
            and not any(overrides_calls(one, Extension) for one in server._extensions)
        )
