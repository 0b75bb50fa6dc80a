"""The contract around a plain ASGI app without a login, whose endpoints anybody may ask."""

from shelflife.integrations.asgi import ContractMiddleware, contract_app


def openly(app, provider, *, fixes=(), operations=None):
    """The app with the contract: calls of `/contract/` go to the contract's own app, all else to the app."""
    contract = contract_app(provider, fixes=fixes)

    async def routed(scope, receive, send):
        is_contract = scope["type"] == "http" and "/contract/" in scope["path"]
        await (contract if is_contract else app)(scope, receive, send)

    return ContractMiddleware(routed, provider, operations=operations)
