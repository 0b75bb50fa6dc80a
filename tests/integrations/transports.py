"""The transports of all libraries, by the library that the transport underneath is of."""

import httpx

from shelflife.integrations import httpx as classic
from shelflife.integrations import httpx2 as modern

__all__ = ["async_memory_transport", "memory_transport"]


def memory_transport(memory, transport, **options):
    """A memory behind a blocking client. It only watches unless there is a guard."""
    options = {"guard": None, **options}
    if hasattr(transport, "with_memory"):
        return transport.with_memory(memory, transport, **options)
    library = classic if isinstance(transport, httpx.BaseTransport) else modern
    return library.MemoryTransport(memory, transport, **options)


def async_memory_transport(memory, transport, **options):
    """A memory behind an async client. It only watches unless there is a guard."""
    options = {"guard": None, **options}
    if hasattr(transport, "with_memory"):
        return transport.with_memory(memory, transport, **options)
    library = classic if isinstance(transport, httpx.AsyncBaseTransport) else modern
    return library.AsyncMemoryTransport(memory, transport, **options)
