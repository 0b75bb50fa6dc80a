"""What agents on many machines can share: our memory on each engine, and what people would use there today.

Each is used through its own public API, with the settings that its documents call best.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg

from benchmarks.bare_valkey import BareValkey
from benchmarks.contenders import Contender, LangGraph, Ours, TaggedCache, is_installed
from benchmarks.engines import Engines
from benchmarks.fixes import AGREED, fill
from shelflife.client import InProcessStore, SqliteStore
from shelflife.client.opening import store_at
from shelflife.client.remote import RemoteStore
from shelflife.client.valkey import ValkeyStore

__all__ = [
    "BY_HAND",
    "CASHEWS",
    "CASHEWS_NEAR",
    "IN_PROCESS",
    "LANGGRAPH",
    "SQLITE",
    "fleet_contenders",
    "ours_on",
]

IN_PROCESS, SQLITE = "ours, in process", "ours, SQLite"
LANGGRAPH, BY_HAND = "langgraph, PostgreSQL", "langgraph, PostgreSQL, an index added by hand"
CASHEWS, CASHEWS_NEAR = "cashews, Valkey", "cashews, Valkey, near"
_AT_ONCE = 250
_INDEX = "create index by_row on store ((value -> 'row'))"


def ours_on(engine: str, *, near: bool = False) -> str:
    """What our memory on an engine is called."""
    return f"ours, {engine}{', near' if near else ''}"


def fleet_contenders(
    folder: Path, engines: Engines, stack: ExitStack, *, only_ours: bool
) -> Sequence[Contender]:
    """All that are installed. What they hold open is let go of with the stack."""
    found: list[Contender] = [
        Ours(IN_PROCESS, InProcessStore(), is_durable=False),
        Ours(SQLITE, stack.enter_context(closing(SqliteStore(folder / "ours.db"))), is_durable=True),
    ]
    for engine, address in (("PostgreSQL", engines.postgres), ("Valkey", engines.valkey)):
        found += [_ours(engine, address, stack, near=near) for near in (False, True)]
    if only_ours:
        return found
    if is_installed("langgraph.store.postgres"):
        found += [_langgraph(engines.postgres, stack, by_hand=by_hand) for by_hand in (False, True)]
    if is_installed("cashews"):
        at = f"{engines.valkey[:-1]}1"
        found.append(TaggedCache(CASHEWS, at, is_durable=True))
        at = f"{engines.valkey[:-1]}2"
        found.append(TaggedCache(CASHEWS_NEAR, at, is_durable=True, is_near=True, client_side=True))
    return found


def _ours(engine: str, address: str, stack: ExitStack, *, near: bool) -> Contender:
    store = store_at(address, namespace="near" if near else "plain", near=near)
    assert isinstance(store, RemoteStore)
    stack.enter_context(closing(store))
    kind = _OursInPostgres if engine == "PostgreSQL" else _OursOnEngine if near else _OursInValkey
    return kind(ours_on(engine, near=near), store, address, is_near=near)


class _OursOnEngine(Ours):
    """Our memory over an engine, which is given only so much at once that it answers in time."""

    def __init__(self, name: str, store: RemoteStore, address: str, *, is_near: bool) -> None:
        super().__init__(name, store, is_durable=True, is_near=is_near)
        self._address = address

    async def fill(self, size: int) -> None:
        fill(self._store, size, _AT_ONCE, AGREED)


class _OursInValkey(_OursOnEngine):
    _bare: BareValkey | None = None

    def bare_eviction(self, row: str) -> Callable[[], object] | None:
        if self._bare is None:
            assert isinstance(self._store, ValkeyStore)
            self._bare = BareValkey(self._store, self._address)
        return self._bare.eviction(row)


class _OursInPostgres(_OursOnEngine):
    async def fill(self, size: int) -> None:
        await super().fill(size)
        _settle(self._address)


class _LangGraphInPostgres(LangGraph):
    """`PostgresStore`, over one connection that prepares every statement, as its documents say."""

    address = ""
    has_index = False

    async def fill(self, size: int) -> None:
        self._store.setup()
        if self.has_index:
            with psycopg.connect(self.address, autocommit=True) as connection:
                connection.execute(_INDEX)
        await super().fill(size)
        _settle(self.address)


def _langgraph(address: str, stack: ExitStack, *, by_hand: bool) -> Contender:
    from langgraph.store.postgres import PostgresStore

    database = "by_hand" if by_hand else "langgraph"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"create database {database}".encode())
    address = address.replace("/postgres?", f"/{database}?")
    store = stack.enter_context(PostgresStore.from_conn_string(address))
    name = BY_HAND if by_hand else LANGGRAPH
    found = _LangGraphInPostgres(name, store, is_durable=True, evictions_wanted=20)
    found.address, found.has_index = address, by_hand
    return found


def _settle(address: str) -> None:
    """What PostgreSQL does by itself within minutes: it has a look at what there is."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("vacuum analyze")
