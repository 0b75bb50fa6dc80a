"""What stands side by side: our memory, and what people would use today, each through its own public API.

All are async, so that one that needs an event loop pays no more for it than the others. A package that is not installed is left out.
"""

import asyncio
import json
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Protocol

from benchmarks.fixes import AGREED, OPERATION, ORIGIN, Telling, fill, fix, request, row_node
from shelflife.client import Exchange, InProcessStore, Memory, SqliteStore, Store, Write

__all__ = ["Contender", "LangGraph", "Ours", "TaggedCache", "contenders", "is_installed"]

_URL = f"{ORIGIN}/subscriptions"
_NAMESPACE = ("fixes", "subscriptions")
_ROOM_FOR_ALL = 10_000_000
_AT_ONCE = 100


class Contender(Protocol):
    """Something that remembers fixes."""

    name: str
    is_durable: bool
    """Whether it keeps fixes in a file."""

    most_fixes: int
    """How many it is given at most; fewer where to fill it would take minutes."""

    evictions_wanted: int
    """How often precise eviction is tried; less often where it takes long."""

    is_near: bool
    """Whether it keeps what it has found at hand. Then all is recalled once before it counts."""

    async def fill(self, size: int) -> None:
        """Remember so many fixes."""

    async def recall(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """The parameters to merge into a request."""

    def lesson(self, number: int, size: int) -> Any:
        """What a fix arrives as; to make it is not its work."""

    async def put(self, lesson: Any) -> None:
        """Remember it."""

    def news(self, row: str) -> Any:
        """What the change of a row arrives as."""

    async def evict(self, news: Any) -> None:
        """Forget all that rests on the row, and nothing else."""


def is_installed(module: str) -> bool:
    """Whether a module is there. Of a package that comes in parts, another part may be."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def contenders(folder: Path) -> list[Contender]:
    """All that are installed, ours first. Each has a folder of its own, as it would: ours looks at whether anything there has come or gone."""
    ours, requests_cache, langgraph = (folder / name for name in ("ours", "requests-cache", "langgraph"))
    for own in (ours, requests_cache, langgraph):
        own.mkdir()
    found: list[Contender] = [
        Ours("ours, SQLite", SqliteStore(ours / "ours.db"), is_durable=True),
        Ours("ours, in process", InProcessStore(), is_durable=False),
    ]
    if is_installed("requests_cache"):
        found.append(_RequestsCache(requests_cache / "requests-cache.db"))
    if is_installed("cashews"):
        found.append(
            TaggedCache(
                "cashews, in process", "mem://", is_durable=False, size=_ROOM_FOR_ALL, check_interval=0
            )
        )
    if is_installed("langgraph.store.sqlite"):
        found += [LangGraph.in_process(), LangGraph.in_sqlite(langgraph / "langgraph.db")]
    return found


class Ours:
    """`memory.recall`, and `memory.observe` of a response that teaches or of one that tells what has moved, as agents have it by default."""

    most_fixes = _ROOM_FOR_ALL
    evictions_wanted = 20

    def __init__(self, name: str, store: Store, *, is_durable: bool, is_near: bool = False) -> None:
        self.name = name
        self.is_durable = is_durable
        self.is_near = is_near
        self._store = store
        self._memory = Memory(store, capacity=_ROOM_FOR_ALL, most_evictions=None)
        self._server = Telling()

    async def fill(self, size: int) -> None:
        fill(self._store, size, known=AGREED)

    async def recall(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        found = self._memory.recall(ORIGIN, OPERATION, wanted)
        return found[0].parameters if found else None

    def lesson(self, number: int, size: int) -> Exchange:
        return self._server.teaching(number, size)

    async def put(self, lesson: Exchange) -> None:
        self._memory.observe(lesson)

    def news(self, row: str) -> Exchange:
        return self._server.evicting(row)

    async def evict(self, news: Exchange) -> None:
        self._memory.observe(news)

    async def drop(self, tag: str) -> None:
        """What the store does of that, which is all that the others do."""
        known = self._store.known(ORIGIN)
        if self._store.write(ORIGIN, known.revision, Write(known.knowledge, drop=[tag])) is None:
            raise RuntimeError("somebody else has written to the store")

    def bare_eviction(self, row: str) -> Callable[[], object] | None:
        """An eviction with all of ours taken out; None where that is not measured here."""
        return None

    async def carry_out(self, bare: Callable[[], object]) -> None:
        """Such an eviction."""
        bare()


class _RequestsCache:
    """An HTTP cache: responses by request. Nothing leads from a row to the responses that rest on it but a look at each."""

    name = "requests-cache, SQLite"
    is_durable = True
    is_near = False
    most_fixes = 10_000
    evictions_wanted = 2

    def __init__(self, path: Path) -> None:
        from requests_cache.backends import SQLiteCache

        self._cache = SQLiteCache(path, wal=True)

    async def fill(self, size: int) -> None:
        with self._cache.responses.bulk_commit():
            for number in range(size):
                await self.put(self.lesson(number, size))

    async def recall(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        response = self._cache.get_response(self._cache.create_key(self._request(wanted)))
        parameters: dict[str, Any] | None = response.json()["parameters"] if response is not None else None
        return parameters

    def lesson(self, number: int, size: int) -> Any:
        from requests import Response
        from urllib3 import HTTPResponse

        sent = self._request(request(number))
        response = Response()
        # Its `filter` leaves out what is no success, so the rejection goes in as one.
        response.status_code, response.url, response.request = 200, _URL, sent
        response.headers["content-type"] = "application/json"
        response.raw = HTTPResponse(
            BytesIO(json.dumps(_as_json(number, size)).encode()),
            response.headers,
            status=200,
            preload_content=False,
        )
        return response

    async def put(self, lesson: Any) -> None:
        self._cache.save_response(lesson, self._cache.create_key(lesson.request))

    def news(self, row: str) -> str:
        return row_node(row)

    async def evict(self, news: str) -> None:
        everything = self._cache.filter()
        self._cache.delete(*[found.cache_key for found in everything if news in found.json()["rows"]])

    def _request(self, wanted: dict[str, Any]) -> Any:
        from requests import Request

        return Request("POST", _URL, json=wanted).prepare()


class TaggedCache:
    """A cache with tags, cashews: `set` with tags, `get`, `delete_tags`."""

    most_fixes = _ROOM_FOR_ALL
    evictions_wanted = 20

    def __init__(
        self, name: str, where: str, *, is_durable: bool, is_near: bool = False, **settings: Any
    ) -> None:
        from cashews import Cache

        self.name = name
        self.is_durable = is_durable
        self.is_near = is_near
        self._cache = Cache()
        self._cache.setup(where, **settings)

    async def fill(self, size: int) -> None:
        for first in range(0, size, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, size))
            await asyncio.gather(*(self.put(self.lesson(number, size)) for number in numbers))

    async def recall(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        found = await self._cache.get(_key(wanted))
        parameters: dict[str, Any] | None = found["parameters"] if found else None
        return parameters

    def lesson(self, number: int, size: int) -> tuple[str, dict[str, Any]]:
        return _key(request(number)), _as_json(number, size)

    async def put(self, lesson: tuple[str, dict[str, Any]]) -> None:
        key, value = lesson
        await self._cache.set(key, value, tags=[*value["tables"], *value["rows"]])

    def news(self, row: str) -> str:
        return row_node(row)

    async def evict(self, news: str) -> None:
        await self._cache.delete_tags(news)


class LangGraph:
    """The long-term memory of an agent framework: `get`, `put`, and for a row `search` with a filter, then a batch of deletions."""

    most_fixes = _ROOM_FOR_ALL
    is_near = False
    _MOST_FOUND: ClassVar[int] = 1000

    def __init__(self, name: str, store: Any, *, is_durable: bool, evictions_wanted: int = 3) -> None:
        self.name = name
        self.is_durable = is_durable
        self.evictions_wanted = evictions_wanted
        self._store = store

    @classmethod
    def in_process(cls) -> "LangGraph":
        from langgraph.store.memory import InMemoryStore

        return cls("langgraph, in process", InMemoryStore(), is_durable=False)

    @classmethod
    def in_sqlite(cls, path: Path) -> "LangGraph":
        import sqlite3

        from langgraph.store.sqlite import SqliteStore as LangGraphSqliteStore

        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        store = LangGraphSqliteStore(connection)
        store.setup()
        return cls("langgraph, SQLite", store, is_durable=True)

    async def fill(self, size: int) -> None:
        from langgraph.store.base import PutOp

        for first in range(0, size, 10_000):
            numbers = range(first, min(first + 10_000, size))
            self._store.batch([PutOp(_NAMESPACE, *self.lesson(number, size)) for number in numbers])

    async def recall(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        found = self._store.get(_NAMESPACE, _key(wanted))
        parameters: dict[str, Any] | None = found.value["parameters"] if found else None
        return parameters

    def lesson(self, number: int, size: int) -> tuple[str, dict[str, Any]]:
        value = _as_json(number, size)
        value["row"] = value["rows"][0]  # a filter compares a field with a value, and looks into no list
        return _key(request(number)), value

    async def put(self, lesson: tuple[str, dict[str, Any]]) -> None:
        self._store.put(_NAMESPACE, *lesson)

    def news(self, row: str) -> str:
        return row_node(row)

    async def evict(self, news: str) -> None:
        from langgraph.store.base import PutOp

        found = self._store.search(_NAMESPACE, filter={"row": news}, limit=self._MOST_FOUND)
        self._store.batch([PutOp(_NAMESPACE, item.key, None) for item in found])


def _key(wanted: dict[str, Any]) -> str:
    """What a builder without our places would look a request up by: the whole of it."""
    return f"{OPERATION} {json.dumps(wanted, sort_keys=True)}"


def _as_json(number: int, size: int) -> dict[str, Any]:
    entry = fix(number, size)
    return {
        "type": entry.type,
        "parameters": entry.parameters,
        "when": entry.condition.when,
        "unless": {path: list(values) for path, values in entry.condition.unless.items()},
        "tables": list(entry.grounds.tables),
        "rows": list(entry.grounds.rows or ()),
    }
