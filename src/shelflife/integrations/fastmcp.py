"""The contract inside a server of FastMCP: `install(server, provider)`."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from shelflife.contract.envelopes import META_KEY
from shelflife.extras import needing
from shelflife.server.provider import Provider

with needing("fastmcp"):
    from fastmcp import FastMCP
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
    from mcp_types import TextContent

    from shelflife.integrations.mcp_questions import answer_questions, be_the_first, headers_of
    from shelflife.integrations.mcp_tools import (
        Called,
        Listed,
        ToolsUnderContract,
        leave_refusals_out_of,
        metadata_of,
    )

__all__ = ["install"]

_LETS_EVERYBODY_IN = {
    f"fastmcp.server.middleware.{name}"
    for name in ("caching", "dereference", "error_handling", "logging", "ping", "response_limiting", "timing")
}
"""Middleware that asks for nothing. Any other may, and for another thing of another tool."""


def install(
    server: FastMCP[Any],
    provider: Provider,
    *,
    checked: Collection[str] = (),
    operations: Mapping[str, str] | None = None,
    fixes: Collection[str] | None = None,
) -> None:
    """Give the server the contract, as `shelflife.integrations.mcp.install` does: inside of all its middleware.

    By default the fixes are told without a call of tools with nothing before them: no `auth`, and no middleware or extension
    of your own.
    """
    extension = _ContractExtension(server, provider, checked, operations, fixes)
    server.add_extension(extension)
    leave_refusals_out_of("fastmcp.server.server")


class _ContractExtension(ServerExtension):  # type: ignore[misc] # it is not there where types are checked
    identifier = META_KEY

    def __init__(
        self,
        server: FastMCP[Any],
        provider: Provider,
        checked: Collection[str],
        operations: Mapping[str, str] | None,
        fixes: Collection[str] | None,
    ) -> None:
        be_the_first(server._mcp_server)
        self._tools = ToolsUnderContract(
            provider, self._listed, checked=checked, operations=operations, fixes=fixes
        )
        answer_questions(server._mcp_server, provider, self._tools)

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        return self._tools.life()

    async def intercept_tool_call(
        self, params: Any, context: Any, call_next: Callable[[], Awaitable[Any]]
    ) -> Any:
        request = context.request_context
        called = Called(params.name, params.arguments or {}, request and request.meta, headers_of(request))
        answered = await self._tools.call(called, call_next)
        result = answered.result
        if result is None:
            text = TextContent(type="text", text=answered.error)
            return ToolResult(content=[text], meta=dict(answered.meta) or None, is_error=True)
        if not answered.meta or type(result) is InputRequiredToolResult or not isinstance(result, ToolResult):
            return result
        meta = {**(result.meta or {}), **answered.meta}
        stamped = result.model_copy(update={"meta": meta})
        if (raw := result._raw_mcp_result) is not None:  # of a proxy, which hands on what it got as it is
            stamped._raw_mcp_result = raw.model_copy(update={"meta": meta})
        return stamped

    async def _listed(self) -> list[Listed]:
        server = self.server
        others = [one for one in server.middleware if type(one).__module__ not in _LETS_EVERYBODY_IN]
        others += [one for one in server._extensions.values() if _may_stop_calls(one) and one is not self]
        # not as it lists them itself: who asks first may not see all
        return [_as_listed(tool, bool(others)) for tool in await super(FastMCP, server).list_tools()]


def _as_listed(tool: Tool, is_guarded: bool) -> Listed:
    guards = ("",) if is_guarded or tool.auth is not None else ()
    function, taken = getattr(tool, "fn", None), tool.parameters.get("properties", {})
    if function is not None:
        return Listed(tool.name, guards, metadata_of(function, taken))
    nulls = frozenset(name for name, of in taken.items() if "default" in of and of["default"] is None)
    return Listed(tool.name, guards, nulls=nulls)


def _may_stop_calls(extension: ServerExtension) -> bool:
    return type(extension).intercept_tool_call is not ServerExtension.intercept_tool_call
