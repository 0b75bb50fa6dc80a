"""What an adapter does unless its user says otherwise, by what its channel carries. All adapters take their defaults from here."""

import msgspec

from shelflife.client.guard import Guard

__all__ = ["HTTP", "MCP", "TOOL", "Channel"]


class Channel(msgspec.Struct, frozen=True):
    """The defaults for one way to a server."""

    guard: Guard | None = Guard()
    """What may be written into a request; with None the memory only learns."""

    compact: bool = True
    """Whether a request names the position that is known, wherever the adapter itself writes the request."""

    conditional: bool = False
    """Whether a request with remembered values asks not to be carried out once they are stale. Where workers share a log, the server then
    looks into that for each such request."""


HTTP = Channel()
"""Requests of an HTTP client."""

MCP = Channel(conditional=True)
"""Calls through an MCP client, whose server is mostly one process. A call that fails would cost a model's turn."""

TOOL = Channel(compact=False)
"""Tools that send their own requests: whether headers go with those only their author knows."""
