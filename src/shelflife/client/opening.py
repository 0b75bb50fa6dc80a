"""Where a memory lives, in one word: a file, or an engine that many machines share."""

from os import PathLike
from typing import Protocol, runtime_checkable

from shelflife.client.stores import Store
from shelflife.places import POSTGRES, Place, place_of

__all__ = ["Closeable", "is_file", "store_at"]

_VALKEY = ("redis", "rediss", "valkey", "valkeys")


@runtime_checkable
class Closeable(Protocol):
    """A store that holds something open."""

    def close(self) -> None:
        """Let go of it, until the next verb."""


def is_file(where: str | PathLike[str]) -> str | None:
    """The path of the file that a memory is in; None when it is in an engine. `ValueError` when it is nowhere."""
    scheme, name = _place_of(where)
    return None if scheme else name


def _place_of(where: str | PathLike[str]) -> Place:
    shown = "sqlite:///, postgresql://, redis:// or rediss://"
    return place_of(where, "memory", (*POSTGRES, *_VALKEY), shown)


def store_at(
    where: str | PathLike[str], *, namespace: str | None = None, near: bool = False, read_only: bool = False
) -> Store:
    """The store at a place; what is only read is not made where there is none. `ValueError` when there can be none."""
    scheme, name = _place_of(where)
    if not scheme:
        if namespace is not None or near:
            raise ValueError(
                "a file has no namespaces, and is near already: they are for postgresql:// and redis://"
            )
        from shelflife.client.sqlite import SqliteStore

        return SqliteStore(name, read_only=read_only)
    named = {} if namespace is None else {"namespace": namespace}
    if scheme in POSTGRES:
        from shelflife.client.postgres import PostgresStore

        return PostgresStore(name, near=near, read_only=read_only, **named)
    from shelflife.client.valkey import ValkeyStore

    url = name.replace("valkey", "redis", 1) if scheme.startswith("valkey") else name
    return ValkeyStore(url, near=near, read_only=read_only, **named)
