"""The engines of a run: where its server keeps the log, and where its agents keep their memory. Each run has a part of its own, which goes with it.

Addresses may hold passwords. So a run says only which kind of engine it needs, and whoever plays it has the address in a variable.
"""

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from shelflife.client import SqliteStore, Store, StoreError
from shelflife.client.opening import store_at
from shelflife.client.remote import RemoteStore
from shelflife.errors import ShelflifeError
from shelflife.lab.spec import ADDRESSES, Conduct

__all__ = ["EngineError", "check_engines", "log_of_a_run", "remove_log", "stores_of_a_run"]

_log = logging.getLogger("shelflife")

_FOLDER = "shelflife-lab-"
_BEGINNINGS = {
    "postgres": ("postgresql://", "postgres://"),
    "valkey": ("redis://", "rediss://", "valkey://", "valkeys://"),
}


class EngineError(ShelflifeError):
    """An engine of a run is not there: one sentence for people."""


def check_engines(conduct: Conduct) -> None:
    """`EngineError` when an engine is not there, or its address is none."""
    for kind in sorted({conduct.log, conduct.store} & ADDRESSES.keys()):
        variable = ADDRESSES[kind]
        address = os.environ.get(variable)
        if not address:
            raise EngineError(f"to play on {kind}, say where it is: set {variable}")
        if not address.startswith(_BEGINNINGS[kind]) or "schema=" in address:
            raise EngineError(
                f"{variable} is to begin with {_BEGINNINGS[kind][0]}, and to name no schema: each run has one of its own"
            )
        store = store_at(address, namespace="lab")
        try:
            store.known("")
        except StoreError as error:
            raise EngineError(str(error)) from error
        finally:
            if isinstance(store, RemoteStore):
                store.close()


@contextmanager
def log_of_a_run(kind: str) -> Iterator[str]:
    """Where the log of a run is kept: a file, or the address of a schema. It is gone afterwards."""
    if kind == "file":
        log = str(Path(tempfile.mkdtemp(prefix=_FOLDER)) / "log.db")
    else:
        address = os.environ[ADDRESSES[kind]]
        if "schema=" in address:
            raise EngineError(
                f"{ADDRESSES[kind]} names a schema; each run has one of its own, so leave that out"
            )
        log = f"{address}{'&' if '?' in address else '?'}schema=lab_{secrets.token_hex(8)}"
    try:
        yield log
    finally:
        remove_log(log)


def remove_log(log: str) -> None:
    """Leave nothing of the log of a run."""
    if "://" not in log:
        if Path(log).parent.name.startswith(_FOLDER):
            shutil.rmtree(Path(log).parent, ignore_errors=True)
        return
    import psycopg

    address, _, schema = log.rpartition("schema=")
    try:
        with psycopg.connect(address[:-1], autocommit=True) as connection:
            connection.execute(f'drop schema if exists "{schema}" cascade'.encode())
    except psycopg.Error:
        _log.warning("the log of a run is left behind in the schema %s", schema)


@contextmanager
def stores_of_a_run(conduct: Conduct) -> Iterator[Sequence[Store | None]]:
    """A store for each agent, all over one memory. None stands for one that is in this process alone."""
    with ExitStack() as stack:
        if conduct.store in ADDRESSES:
            yield stack.enter_context(_in_an_engine(conduct.store, conduct.agents))
        elif conduct.store == "sqlite" or conduct.agents > 1:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shelflife-lab-"))
            files = (SqliteStore(Path(folder) / "memory.db") for _ in range(conduct.agents))
            yield [stack.enter_context(closing(file)) for file in files]
        else:
            yield [None]


@contextmanager
def _in_an_engine(kind: str, count: int) -> Iterator[list[RemoteStore]]:
    """Each agent has connections of its own, as on a machine of its own."""
    address, namespace = os.environ[ADDRESSES[kind]], f"lab-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        stores = []
        for _ in range(count):
            store = store_at(address, namespace=namespace)
            if not isinstance(store, RemoteStore):
                raise EngineError(f"{ADDRESSES[kind]} is not the address of an engine")
            store.diary = None  # a run leaves nothing behind
            stores.append(stack.enter_context(closing(store)))
        try:
            yield stores
        finally:
            try:
                stores[0].clear()
            except StoreError as error:
                _log.warning("what a run has kept is left behind in the namespace %s: %s", namespace, error)
