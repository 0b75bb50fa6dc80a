"""The contract inside a server of FastMCP: `install(server, provider)`."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from shelflife.contract.envelopes import META_KEY
from shelflife.extras import needing
from shelflife.integrations.taking import takes
from shelflife.server.provider import Provider

with needing("fastmcp"):
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import FastMCPError
    from fastmcp.server.dependencies import CurrentContext, OptionalCurrentContext, bind_request_context
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
    from fastmcp.tools.function_tool import FunctionTool
    from fastmcp.utilities.versions import VersionSpec
    from mcp.server.mcpserver.utilities.func_metadata import func_metadata
    from mcp_types import TextContent

    from shelflife.integrations.mcp_functions import DECORATED, Listed, look_at
    from shelflife.integrations.mcp_questions import answer_questions, be_the_first, headers_of
    from shelflife.integrations.mcp_tools import (
        Called,
        ToolsUnderContract,
        beneath_of,
        leave_refusals_out_of,
        overrides_calls,
        with_meta,
    )

__all__ = ["install"]

_LETS_EVERYBODY_IN = {
    f"fastmcp.server.middleware.{name}"
    for name in ("caching", "dereference", "error_handling", "logging", "ping", "response_limiting", "timing")
}
"""Middleware that asks for nothing. Any other may, and for another thing of another tool."""


_HARMLESS = type(CurrentContext()), type(OptionalCurrentContext())
"""What a function may be given beside its arguments without anybody being asked who they are."""


def install(
    server: FastMCP[Any],
    provider: Provider,
    *,
    checked: Collection[str] = (),
    operations: Mapping[str, str] | None = None,
    fixes: Collection[str] | None = None,
) -> None:
    """Give the server the contract, as `shelflife.integrations.mcp.install` does: inside of all its middleware.

    By default the fixes are told without a call of tools with nothing before them: plain functions of this server that whoever asks
    could call now, without `auth`, dependency or decorator, and no middleware or extension of your own.
    """
    takes(
        "install of integrations.fastmcp takes a FastMCP and a Provider",
        (server, FastMCP),
        (provider, Provider),
    )
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
        beneath = server._mcp_server
        be_the_first(beneath)
        self._tools = ToolsUnderContract(provider, self, beneath, checked, operations, fixes)
        self._get_plain = server.get_tool
        answer_questions(beneath, provider, self._tools.catalogue)
        # Where a call finds its tool, when everything else has let it pass; and so does whoever else runs one.
        server.get_tool = self._get

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
        if not self.is_finished(result):
            return result
        stamped = with_meta(result, answered.meta)
        if (raw := result._raw_mcp_result) is not None:  # of a proxy, which hands on what it got as it is
            stamped._raw_mcp_result = with_meta(raw, answered.meta)
        return stamped

    async def _get(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        tool = await self._get_plain(name, version)
        if tool is None:
            return None
        function = self._tools.about_to_run(self._as_listed(tool))
        return tool if function is None else tool.model_copy(update={"fn": function})

    async def all_tools(self, named: Collection[str]) -> list[Listed]:
        # not as it lists them itself: who asks first may not see all
        beneath: Any = super(FastMCP, self.server)
        tools = [*await beneath.list_tools()]
        # a search may stand for the list
        hidden = [await beneath.get_tool(name) for name in {*named} - {one.name for one in tools}]
        return [self._as_listed(tool) for tool in (*tools, *filter(None, hidden))]

    async def tool_for(self, context: Any, name: str, version: str) -> Listed | None:
        with bind_request_context(context):
            async with Context(fastmcp=self.server):
                tool = await self._get_plain(name, VersionSpec(eq=version) if version else None)
        return None if tool is None else self._as_listed(tool)

    def is_finished(self, result: object) -> bool:
        return isinstance(result, ToolResult) and not isinstance(result, InputRequiredToolResult)

    def is_meant(self, error: Exception) -> bool:
        return isinstance(error, FastMCPError) and beneath_of(error) is error

    def _as_listed(self, tool: Tool) -> Listed:
        function: Any = getattr(tool, "fn", None) if type(tool) is FunctionTool else None
        obstacle = ""
        if function is None:
            obstacle = "it runs no function of this server, but something of another kind or another server"
        elif look_at(function).has_decorator:
            obstacle = DECORATED
        elif tool.task_config.supports_tasks():
            obstacle = "it may run as a task, without anybody waiting"
        elif not self._runs_as_usual:
            obstacle = "the server runs its tools in a way of its own"
        is_open = tool.auth is None and not obstacle and self._is_open
        is_open = is_open and look_at(function).is_plain and not _depends(function, tool.parameters)
        return Listed(
            tool.name,
            tool.version or "",
            function,
            guards=() if is_open else ("",),
            obstacle=obstacle,
            schema=tool.parameters,
            model=lambda: _model_of(function, tool.parameters),
        )

    @property
    def _runs_as_usual(self) -> bool:
        """Whether calls find their tools by way of `_get`, and run what they find."""
        server = self.server
        is_usual = type(server).call_tool is FastMCP.call_tool and "call_tool" not in vars(server)
        return is_usual and vars(server).get("get_tool") == self._get

    @property
    def _is_open(self) -> bool:
        """Whether calls come as far as that without having passed anything that may stop them."""
        server = self.server
        others = [one for one in server._extensions.values() if one is not self]
        return (
            type(server) is FastMCP
            and self._tools.are_reached_by("mcp", "fastmcp")
            and all(map(_lets_everybody_in, server.middleware))
            and not any(overrides_calls(one, ServerExtension) for one in others)
        )


def _lets_everybody_in(middleware: object) -> bool:
    """Whether it is known to ask for nothing. One of its methods may have been replaced."""
    kind = type(middleware)
    is_as_it_was = not any(callable(getattr(kind, name, None)) for name in vars(middleware))
    return kind.__module__ in _LETS_EVERYBODY_IN and is_as_it_was


def _beside(function: Callable[..., Any], schema: Mapping[str, Any]) -> list[inspect.Parameter]:
    """What a function is given that is none of its arguments: it is not in their schema."""
    return [one for one in look_at(function).parameters if one.name not in schema.get("properties", {})]


def _depends(function: Callable[..., Any], schema: Mapping[str, Any]) -> bool:
    """Whether a function is given anything but its arguments and the context of the call: that may ask who is calling."""
    return not all(isinstance(one.default, _HARMLESS) for one in _beside(function, schema))


def _model_of(function: Callable[..., Any], schema: Mapping[str, Any]) -> Any:
    """The model of a function's arguments."""
    others = [one.name for one in _beside(function, schema)]
    return func_metadata(function, skip_names=others, structured_output=False).arg_model
