"""The contract inside an MCP server of the SDK: `install(server, provider)`.

For a server of FastMCP there is `shelflife.integrations.fastmcp`, and for clients of either `shelflife.integrations.mcp_client`.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from shelflife.errors import ShelflifeError
from shelflife.extras import needing
from shelflife.integrations.mcp_questions import answer_questions, be_the_first, headers_of
from shelflife.integrations.mcp_tools import Called, Listed, ToolsUnderContract
from shelflife.server.provider import Provider

with needing("mcp"):
    from mcp.server import MCPServer
    from mcp.server.extension import Extension
    from mcp.server.lowlevel import Server
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import UnexpectedToolError
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

    - `checked` are the tools whose arguments are checked before they run, as they will be given them. All others call
      `provider.check` themselves, with their arguments by name.
    - `operations` says of a tool which operation it is, for policies that were written for an API:
      `{"create_order": "POST /orders"}`. Any other is `CALL /` and its name, as in `CALL /create_order`.
    - `fixes` are the tools whose fixes are told without a call. By default these are the ones with nothing before them: no
      middleware and no extension of your own.
    """
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
        self._tools = ToolsUnderContract(
            provider, self._listed, checked=checked, operations=operations, fixes=fixes
        )
        self._call_plain = server.call_tool
        self._plain_life = beneath.lifespan
        answer_questions(beneath, provider, self._tools, server._subscriptions)
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
            answered = await self._tools.call(called, lambda: self._call_plain(name, arguments, context))
        except ShelflifeError as error:
            raise UnexpectedToolError(f"Error executing tool {name}") from error
        result = answered.result
        if result is None:
            text = TextContent(type="text", text=answered.error)
            return CallToolResult(content=[text], is_error=True, _meta=dict(answered.meta) or None)
        if not answered.meta or isinstance(result, InputRequiredResult):
            return result
        return result.model_copy(update={"meta": {**(result.meta or {}), **answered.meta}})

    async def _listed(self) -> list[Listed]:
        server = self._server
        parts = (*server.middleware, *(one for one in server._extensions if _may_stop_calls(one)))
        guards = tuple("" for one in parts if not type(one).__module__.startswith("mcp."))
        return [Listed(tool.name, guards, tool.fn_metadata) for tool in server._tool_manager.list_tools()]


def _may_stop_calls(extension: Extension) -> bool:
    return type(extension).intercept_tool_call is not Extension.intercept_tool_call
