"""A memory behind an `httpx2` client: transports that watch every response. Nothing else in the user's code changes.

client = httpx2.Client(transport=MemoryTransport(Memory()))
"""

from shelflife.extras import needing
from shelflife.integrations.watching import AsyncWatching, BlockingWatching

with needing("httpx2"):
    import httpx2

__all__ = ["AsyncMemoryTransport", "MemoryTransport"]


class MemoryTransport(BlockingWatching[httpx2.Request, httpx2.Response], httpx2.BaseTransport):
    """Watches the responses of another transport, and amends requests as far as the guard allows."""

    _default_transport = httpx2.HTTPTransport
    _sends_by = "handle_request"


class AsyncMemoryTransport(AsyncWatching[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """A `MemoryTransport` for async clients."""

    _default_transport = httpx2.AsyncHTTPTransport
    _sends_by = "handle_async_request"
