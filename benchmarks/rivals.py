"""Our memory side by side with an HTTP cache, a tagged cache and an agent framework's store: the same work, in turns, in one run."""

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contenders import contenders
from benchmarks.figures import Figure, at_least
from benchmarks.processes import in_fresh_process
from benchmarks.turns import Sampled, Sizes, sampled_in_turns

__all__ = ["REMARKS", "measure"]

_SUBJECT = "rivals"

REMARKS = {
    _SUBJECT: (
        "ours: `memory.recall`; for a put and an eviction `memory.observe`, which reads the response of a server that names its position, as by"
        " default. Only ours finds out by itself that something went stale, and finds a fix for a request that differs in other fields.",
        "Dropping by row: the store is handed the row, as the others are, and gives back what it has dropped. That is the like comparison;"
        " eviction by row is all that follows from a response.",
        "requests-cache (`SQLiteCache`, WAL): `create_key` and `get_response`, `save_response`; it can delete by key or clear everything, so"
        " for a row all responses are read (`filter`) and those that name it deleted. It holds a tenth of what the others hold, because to fill it"
        " takes a millisecond a response.",
        "cashews (`mem://`): `get`, `set` with tags, `delete_tags`. It evicts by row as precisely as ours and with less work, for it gives"
        " nothing back of what it drops; tags need its in-process or Redis backend, and a tag keeps naming keys that were replaced.",
        "langgraph (`InMemoryStore`, and `SqliteStore` with WAL): `get`, `put`; for a row `search` with a filter over the namespace, then"
        " a batch of deletions. A filter compares one field with one value, so a fix that rests on two rows cannot be found by both.",
        "Where ours is behind: cashews evicts without reading a response, deciding what it means, or telling what went, which is most of what"
        " ours does in an eviction. langgraph puts into one table and keeps no way from a row to its fixes, which its eviction pays for. cashews"
        " and langgraph recall by one look at a key that is the whole request, while ours works out the place from the fields that matter,"
        " checks that the fix holds and notes its use.",
    )
}


_TINY = Sizes(2_000, 2, recalls_in_a_round=5, puts_in_a_round=5)


def measure(is_quick: bool) -> Iterator[Figure]:
    """All contenders that are installed."""
    sizes = _TINY if is_quick else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        sampled = in_fresh_process(_samples, sizes, folder)
    for one in sampled:
        yield from one.figures(_SUBJECT)
    for one in sampled:
        ours = next(other for other in sampled if other.is_durable == one.is_durable)
        if ours is not one:
            yield from _against(one, ours)


def _against(rival: Sampled, ours: Sampled) -> Iterator[Figure]:
    """How many times as fast as a rival of the same kind ours is."""
    for act, theirs_s, ours_s, is_judged in (
        ("recall", rival.recall_s, ours.recall_s, True),
        ("dropping by row", rival.evict_s, ours.drop_s, True),
        ("eviction by row", rival.evict_s, ours.evict_s, True),
        ("put", rival.put_s, ours.put_s, False),
    ):
        yield Figure(
            subject=_SUBJECT,
            what=f"{act}: {ours.name}, is so many times as fast as {rival.name}",
            measured=statistics.median(theirs_s) / statistics.median(ours_s),
            unit="",
            sample_count=len(theirs_s),
            target=at_least(1) if is_judged else None,
        )


def _samples(sizes: Sizes, folder: str) -> list[Sampled]:
    found = contenders(Path(folder))
    return asyncio.run(sampled_in_turns(found, sizes))
