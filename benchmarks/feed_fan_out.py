"""From a reload to the last of a thousand listeners of the change feed.

Server and listeners are threads of one process; the listeners are plain sockets, so that no client library is measured.
"""

import asyncio
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from benchmarks.figures import Figure, median_figure, worst_of_a_hundred_figure
from benchmarks.processes import in_fresh_process
from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.server import Provider
from shelflife.testing import serving

__all__ = ["measure"]

_SUBJECT = "feed fan-out"
_END_OF_EVENT = b"\n\n"


def measure(is_quick: bool) -> Iterator[Figure]:
    """Some reloads, each timed at every listener."""
    listener_count, reload_count = (20, 3) if is_quick else (1000, 30)
    last_ms, all_ms = in_fresh_process(_fanned_out, listener_count, reload_count)
    yield median_figure(
        _SUBJECT,
        f"from a reload to the last of {listener_count:,} listeners",
        last_ms,
        "ms",
    )
    yield worst_of_a_hundred_figure(
        _SUBJECT, f"from a reload to each of {listener_count:,} listeners", all_ms, "ms"
    )


def _fanned_out(listener_count: int, reload_count: int) -> tuple[list[float], list[float]]:
    provider = Provider({f"table_{number}": {"k": {"v": 0}} for number in range(50)})
    app = ContractMiddleware(contract_app(provider), provider)
    with serving(app) as address:
        return asyncio.run(_listened(provider, address, listener_count, reload_count))


async def _listened(
    provider: Provider, address: str, listener_count: int, reload_count: int
) -> tuple[list[float], list[float]]:
    parts = urlsplit(address)
    connections = [await _connected(parts.hostname or "", parts.port or 0) for _ in range(listener_count)]
    last_ms: list[float] = []
    all_ms: list[float] = []

    async def heard(reader: asyncio.StreamReader) -> float:
        await reader.readuntil(_END_OF_EVENT)
        return time.perf_counter()

    for number in range(1, reload_count + 1):
        waiting = [asyncio.create_task(heard(reader)) for reader, _ in connections]
        await asyncio.sleep(0)
        begun_at = time.perf_counter()
        await asyncio.to_thread(provider.registry.reload_table, "table_7", set={"k": {"v": number}})
        took_ms = [1000 * (at - begun_at) for at in await asyncio.gather(*waiting)]
        last_ms.append(max(took_ms))
        all_ms += took_ms
    for _, writer in connections:
        writer.close()
    return last_ms, all_ms


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        f"GET /contract/changes HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(_END_OF_EVENT)
    return reader, writer
