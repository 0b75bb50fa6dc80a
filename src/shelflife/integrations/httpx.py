"""A memory behind a classic `httpx` client: transports that watch every response. Nothing else in the user's code changes.

client = httpx.Client(transport=MemoryTransport(Memory()))
"""

from shelflife.extras import needing
from shelflife.integrations.watching import AsyncWatching, BlockingWatching

with needing("httpx"):
    import httpx

__all__ = ["AsyncMemoryTransport", "MemoryTransport"]


class MemoryTransport(BlockingWatching[httpx.Request, httpx.Response], httpx.BaseTransport):
    """Watches the responses of another transport, and amends requests as far as the guard allows."""

    _default_transport = httpx.HTTPTransport
    _sends_by = "handle_request"


class AsyncMemoryTransport(AsyncWatching[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """A `MemoryTransport` for async clients."""

    _default_transport = httpx.AsyncHTTPTransport
    _sends_by = "handle_async_request"
