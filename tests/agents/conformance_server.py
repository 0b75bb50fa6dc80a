"""An MCP server that has what MCP's conformance suite asks for: `python -m tests.agents.conformance_server sdk contract 0`.

It is one of the SDK or of FastMCP, with the contract in it or without. The suite knows tools, resources and prompts by their names.
"""

import base64
import sys

import fastmcp
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    Completion,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    TextContent,
    TextResourceContents,
)

from shelflife.integrations import fastmcp as of_fastmcp
from shelflife.integrations import mcp as of_sdk
from shelflife.testing.serving import listening_on
from tests.agents.mcp_shops import shop_provider

ONE_PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060"
        "000000050001a5f645400000000049454e44ae426082"
    )
).decode()
SILENCE = base64.b64encode(
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"
).decode()


def embedded(uri, text="This is an embedded resource content."):
    contents = TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    return EmbeddedResource(type="resource", resource=contents)


def add_tools(server):
    """Those of a plain call."""

    @server.tool()
    def test_simple_text() -> str:
        """Say something."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> ImageContent:
        """Show a picture."""
        return ImageContent(type="image", data=ONE_PIXEL, mime_type="image/png")

    @server.tool()
    def test_audio_content() -> AudioContent:
        """Play nothing."""
        return AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")

    @server.tool()
    def test_embedded_resource() -> EmbeddedResource:
        """Hand a resource out."""
        return embedded("test://embedded-resource")

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Some of each."""
        return [
            TextContent(type="text", text="Multiple content types test:"),
            ImageContent(type="image", data=ONE_PIXEL, mime_type="image/png"),
            embedded("test://mixed-content-resource", '{"test":"data","value":123}'),
        ]


def add_resources(server):
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A picture."""
        return base64.b64decode(ONE_PIXEL)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        """One of many."""
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


def add_prompts(server):
    @server.prompt()
    def test_simple_prompt() -> str:
        """Say something."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """Repeat it."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def sdk_server(has_contract):
    server = MCPServer("conformance", version="1", log_level="ERROR")
    add_tools(server)
    add_resources(server)
    add_prompts(server)

    @server.tool()
    def test_error_handling() -> str:
        """Fail."""
        raise ToolError("This tool intentionally returns an error for testing")

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Say how far it is."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
        return "done"

    @server.tool()
    async def test_trigger_tool_change(ctx: Context) -> str:
        """Say that the tools have changed."""
        await ctx.notify_tools_changed()
        return "told"

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context) -> str:
        """Say that the prompts have changed."""
        await ctx.notify_prompts_changed()
        return "told"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:  # noqa: N803 - the suite's name
        """Hand a resource out."""
        text = TextContent(type="text", text="Please process the embedded resource above.")
        return [PromptMessage(role="user", content=part) for part in (embedded(resourceUri), text)]

    @server.prompt()
    def test_prompt_with_image() -> list[PromptMessage]:
        """Show a picture."""
        image = ImageContent(type="image", data=ONE_PIXEL, mime_type="image/png")
        text = TextContent(type="text", text="Please analyze the image above.")
        return [PromptMessage(role="user", content=part) for part in (image, text)]

    @server.completion()
    async def complete(ref, argument, context):
        return Completion(values=[], total=0, has_more=False)

    if has_contract:
        of_sdk.install(server, shop_provider())
    return server.streamable_http_app()


def fastmcp_server(has_contract):
    server = fastmcp.FastMCP("conformance", version="1")
    add_tools(server)
    add_resources(server)
    add_prompts(server)

    @server.tool()
    def test_error_handling() -> str:
        """Fail."""
        raise fastmcp.exceptions.ToolError("This tool intentionally returns an error for testing")

    @server.tool()
    async def test_tool_with_progress(ctx: fastmcp.Context) -> str:
        """Say how far it is."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
        return "done"

    if has_contract:
        of_fastmcp.install(server, shop_provider())
    return server.http_app(path="/mcp")


if __name__ == "__main__":
    kind, contract, port = sys.argv[1:]
    app = (sdk_server if kind == "sdk" else fastmcp_server)(contract == "contract")
    with listening_on("127.0.0.1", int(port)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])
