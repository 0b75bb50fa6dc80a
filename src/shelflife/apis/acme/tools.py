"""Acme's API as a tool of an MCP server: the same tables, rules and policies, for agents that call tools."""

from typing import Annotated

from pydantic import Field

from shelflife.apis.acme.app import Created, Name, acme_provider
from shelflife.apis.acme.gateway import Declined, Gateway, GatewayDown, InProcessGateway, Order
from shelflife.extras import needing
from shelflife.integrations.mcp import install
from shelflife.server import Provider

with needing("mcp"):
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

__all__ = ["acme_tools"]


def acme_tools(provider: Provider | None = None, gateway: Gateway | None = None) -> "MCPServer[object]":
    """Acme billing as an MCP server."""
    contract = provider or acme_provider()
    payments = gateway or InProcessGateway()
    server: MCPServer[object] = MCPServer("Acme billing", version="1.0.0", log_level="WARNING")

    @server.tool()
    def create_subscription(
        customer: Name,
        plan: Name,
        amount: Annotated[int, Field(strict=True, ge=1, le=99_999_999, description="In minor units")],
        currency: Annotated[str, Field(pattern=r"^[a-z]{3}$")],
        payment_method_token: Name,
        promo_code: Name | None = None,
    ) -> Created:
        """Make a subscription."""
        order = Order(customer, plan, amount, currency, payment_method_token, promo_code)
        try:
            receipt = payments.subscribe(order)
        except (Declined, GatewayDown) as refusal:
            raise ToolError(str(refusal)) from refusal
        sent = {name: value for name, value in order._asdict().items() if value is not None}
        return Created(subscription={**receipt.details, "id": receipt.id, "status": receipt.status, **sent})

    # The tool is an operation of the API, so that policies for that are its own.
    operations = {"create_subscription": "POST /subscriptions"}
    install(server, contract, checked=["create_subscription"], operations=operations)
    return server
