"""Servers of the SDK and of FastMCP with a tool that something stands before: each way in which these let that be."""

import functools
import inspect
from typing import Annotated

import fastmcp
import mcp
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError as FastToolError
from fastmcp.server import create_proxy
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.logging import LoggingMiddleware
from fastmcp.server.transforms import Transform
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import forward
from mcp.server import MCPServer
from mcp.server.extension import Extension
from mcp.server.mcpserver import Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import ToolManager
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams

from shelflife.integrations import fastmcp as of_fastmcp
from shelflife.integrations import mcp as of_sdk
from tests.agents.mcp_shops import FIXES, WANTED, shop_provider

SECRET = "SUMMER"


class Door:
    """A login that lets everybody pass, or nobody."""

    def __init__(self, error):
        self.is_open = False
        self.error = error

    def knock(self):
        if not self.is_open:
            raise self.error("who are you?")

    def on(self, function):
        """A decorator."""

        @functools.wraps(function)
        def guarded(*args, **named):
            self.knock()
            return function(*args, **named)

        return guarded


class Way:
    """A server with a tool that a door is before. It is made up to its first `yield`.

    What follows is done when it has the contract, and after the second one while it runs."""

    def __init__(self, make):
        self.make = make
        self.kind = "sdk" if make.__name__.startswith("sdk") else "fastmcp"

    def __repr__(self):
        return self.make.__name__

    async def told(self, is_open=False, checked=False, fixes=None):
        """What a caller is told by a call, and by questions before and after it: for fixes of the tool, and of one that is open to
        everybody and checks nothing."""
        provider, door = shop_provider(), Door(ToolError if self.kind == "sdk" else FastToolError)
        door.is_open = is_open

        def subscribe(plan: str, promo: str | None = None) -> str:
            """Make a subscription."""
            if not checked:
                provider.check({"plan": plan, "promo": promo})
            return f"made with {promo}"

        making = self.make(door, subscribe)
        server = next(making)
        server.add_tool(greet)
        install = of_sdk.install if self.kind == "sdk" else of_fastmcp.install
        install(server, provider, checked=["subscribe"] if checked else [], fixes=fixes)
        next(making, None)
        async with mcp.Client(server if self.kind == "sdk" else server._mcp_server) as client:
            next(making, None)
            by_question = await fixes_by(client), await fixes_by(client, "greet")
            by_call = await call_by(client)
            return by_call, (*by_question, await fixes_by(client), await fixes_by(client, "greet"))


async def call_by(client):
    try:
        return str(await client.call_tool("subscribe", WANTED))
    except MCPError as error:  # by which some doors answer
        return str(error)


async def fixes_by(client, tool="subscribe"):
    asking = FIXES._replace(body=FIXES.body.replace(b"/subscribe", f"/{tool}".encode()))
    return (await client.session.read_resource(asking.text)).contents[0].text


def greet(plan: str = "") -> str:
    """Say hello."""
    return "hello"


def login_beneath(door):
    """A middleware of the SDK, which FastMCP stands on."""

    async def login(context, call_next):
        if context.method == "tools/call":
            door.knock()
        return await call_next(context)

    return login


# Servers of the SDK.


def sdk_middleware(door, subscribe):
    server = MCPServer("shop", middleware=[login_beneath(door)])
    server.add_tool(subscribe)
    yield server


def sdk_middleware_that_is_added_later(door, subscribe):
    server = MCPServer("shop")
    server.add_tool(subscribe)
    yield server
    yield
    server.middleware.append(login_beneath(door))


def sdk_extension(door, subscribe):
    class Login(Extension):
        identifier = "org.example/login"

        async def intercept_tool_call(self, params, context, call_next):
            door.knock()
            return await call_next(context)

    server = MCPServer("shop", extensions=[Login()])
    server.add_tool(subscribe)
    yield server


def sdk_resolver(door, subscribe):
    async def who() -> str:
        door.knock()
        return "me"

    def with_resolver(plan: str, user: Annotated[str, Resolve(who)], promo: str | None = None) -> str:
        """Make a subscription."""
        return subscribe(plan, promo)

    server = MCPServer("shop")
    server.add_tool(with_resolver, name="subscribe")
    yield server


def sdk_handler_of_its_own(door, subscribe):
    server = MCPServer("shop")
    server.add_tool(subscribe)
    yield server
    yield
    beneath = server._lowlevel_server
    plain = beneath.get_request_handler("tools/call").handler

    async def handle(context, params):
        door.knock()
        return await plain(context, params)

    beneath.add_request_handler("tools/call", CallToolRequestParams, handle)


def sdk_call_tool_that_is_replaced_later(door, subscribe):
    server = MCPServer("shop")
    server.add_tool(subscribe)
    yield server
    plain = server.call_tool

    async def call_tool(*args, **named):
        door.knock()
        return await plain(*args, **named)

    server.call_tool = call_tool


def sdk_decorator(door, subscribe):
    server = MCPServer("shop")
    server.add_tool(door.on(subscribe))
    yield server


def sdk_decorator_that_hides(door, subscribe):
    def guarded(**named):
        """Make a subscription."""
        door.knock()
        return subscribe(**named)

    guarded.__signature__ = inspect.signature(subscribe)
    server = MCPServer("shop")
    server.add_tool(guarded, name="subscribe")
    yield server


def sdk_server_of_its_own_kind(door, subscribe):
    class Guarded(MCPServer):
        async def call_tool(self, *args, **named):
            door.knock()
            return await super().call_tool(*args, **named)

    server = Guarded("shop")
    server.add_tool(subscribe)
    yield server


def sdk_tool_manager_of_its_own_kind(door, subscribe):
    class Guarded(ToolManager):
        async def call_tool(self, *args, **named):
            door.knock()
            return await super().call_tool(*args, **named)

    server = MCPServer("shop")
    server._tool_manager = Guarded()
    server.add_tool(subscribe)
    yield server


def sdk_removed(door, subscribe):
    server = MCPServer("shop")
    server.add_tool(subscribe)
    yield server
    yield
    server.remove_tool("subscribe")


# Servers of FastMCP.


def fast_shop(subscribe, **options):
    server = fastmcp.FastMCP("shop")
    server.add_tool(Tool.from_function(subscribe, name="subscribe", **options))
    return server


class Login(Middleware):
    def __init__(self, door):
        self.door = door

    async def on_call_tool(self, context, call_next):
        self.door.knock()
        return await call_next(context)


class LoginExtension(ServerExtension):
    identifier = "org.example/login"

    def __init__(self, door):
        self.door = door

    async def intercept_tool_call(self, params, context, call_next):
        self.door.knock()
        return await call_next()


def fast_middleware(door, subscribe):
    server = fast_shop(subscribe)
    yield server
    yield
    server.add_middleware(Login(door))


def fast_middleware_with_another_method(door, subscribe):
    server, logging = fast_shop(subscribe), LoggingMiddleware()
    logging.on_call_tool = Login(door).on_call_tool
    yield server
    server.add_middleware(logging)


def fast_middleware_beneath(door, subscribe):
    server = fast_shop(subscribe)
    yield server
    yield
    server._mcp_server.middleware.append(login_beneath(door))


def fast_extension(door, subscribe):
    server = fast_shop(subscribe)
    server.add_extension(LoginExtension(door))
    yield server


def fast_extension_that_is_added_later(door, subscribe):
    server = fast_shop(subscribe)
    yield server
    server.add_extension(LoginExtension(door))


def fast_dependency(door, subscribe):
    login = Depends(door.knock)

    def with_dependency(plan: str, promo: str | None = None, user: None = login) -> str:
        """Make a subscription."""
        return subscribe(plan, promo)

    yield fast_shop(with_dependency)


def fast_dependency_in_an_annotation(door, subscribe):
    async def with_dependency(
        user: Annotated[None, Depends(door.knock)], plan: str, promo: str | None = None
    ) -> str:
        """Make a subscription."""
        return subscribe(plan, promo)

    yield fast_shop(with_dependency)


def fast_dependency_in_place_of_the_context(door, subscribe):
    login = Depends(door.knock)

    def with_dependency(plan: str, promo: str | None = None, context: fastmcp.Context = login) -> str:
        """Make a subscription."""
        return subscribe(plan, promo)

    yield fast_shop(with_dependency)


def fast_transform_that_hides(door, subscribe):
    class Hiding(Transform):
        async def get_tool(self, name, call_next, *, version=None):
            return await call_next(name, version=version) if door.is_open else None

    server = fast_shop(subscribe)
    server.add_transform(Hiding())
    yield server


def fast_decorator(door, subscribe):
    yield fast_shop(door.on(subscribe))


def fast_mounted_with_middleware(door, subscribe):
    inner, outer = fast_shop(subscribe), fastmcp.FastMCP("outer")
    inner.add_middleware(Login(door))
    outer.mount(inner)
    yield outer


def fast_tool_around_a_tool(door, subscribe):
    async def login(**named):
        door.knock()
        return await forward(**named)

    server = fastmcp.FastMCP("shop")
    server.add_tool(Tool.from_tool(Tool.from_function(subscribe), transform_fn=login))
    yield server


def fast_proxy(door, subscribe):
    behind = fast_shop(door.on(subscribe))
    yield create_proxy(behind)


def fast_server_of_its_own_kind(door, subscribe):
    class Guarded(fastmcp.FastMCP):
        async def call_tool(self, *args, **named):
            door.knock()
            return await super().call_tool(*args, **named)

    server = Guarded("shop")
    server.add_tool(subscribe)
    yield server


def fast_disabled(door, subscribe):
    server = fast_shop(subscribe)
    yield server
    yield
    server.disable(names={"subscribe"})


def fast_disabled_from_the_start(door, subscribe):
    server = fast_shop(subscribe)
    server.disable(names={"subscribe"})
    yield server


def fast_removed(door, subscribe):
    server = fast_shop(subscribe)
    yield server
    yield
    server.local_provider.remove_tool("subscribe")


WAYS = [
    Way(make)
    for name, make in list(globals().items())
    if name.startswith(("sdk_", "fast_")) and inspect.isgeneratorfunction(make)
]
CANNOT_BE_CHECKED = {
    "sdk_decorator": "it has a decorator",
    "sdk_decorator_that_hides": "it has a decorator",
    "sdk_server_of_its_own_kind": "the server runs its tools in a way of its own",
    "sdk_tool_manager_of_its_own_kind": "the server runs its tools in a way of its own",
    "fast_decorator": "it has a decorator",
    "fast_mounted_with_middleware": "it runs no function of this server",
    "fast_tool_around_a_tool": "it runs no function of this server",
    "fast_proxy": "it runs no function of this server",
    "fast_server_of_its_own_kind": "the server runs its tools in a way of its own",
}
GONE = {"sdk_removed", "fast_removed", "fast_disabled", "fast_disabled_from_the_start"}
HIDING = {"fast_transform_that_hides"}
"""Whom such a thing lets pass sees a tool with nothing before it."""
