"""Where a memory lives, in one word: a file, or an engine that many machines share."""

from os import PathLike, fspath
from typing import Protocol, runtime_checkable
from urllib.parse import unquote

from shelflife.client.stores import Store

__all__ = ["Closeable", "is_file", "store_at"]

_POSTGRES = ("postgresql", "postgres")
_VALKEY = ("redis", "rediss", "valkey", "valkeys")


@runtime_checkable
class Closeable(Protocol):
    """A store that holds something open."""

    def close(self) -> None:
        """Let go of it, until the next verb."""


def is_file(where: str | PathLike[str]) -> str | None:
    """The path of the file that a memory is in; None when it is in an engine. `ValueError` when it is nowhere."""
    scheme, separator, rest = fspath(where).partition("://")
    if not separator:
        return fspath(where)
    if scheme in (*_POSTGRES, *_VALKEY):
        return None
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return unquote(rest[1:])
    raise ValueError(
        f"{scheme}:// is not where a memory can be; give a file, or an address that begins with sqlite:///,"
        " postgresql://, redis:// or rediss://"
    )


def store_at(where: str | PathLike[str], *, namespace: str | None = None, near: bool = False) -> Store:
    """The store at a place. `ValueError` when there can be none."""
    path, scheme = is_file(where), fspath(where).partition("://")[0]
    if path is not None:
        if namespace is not None or near:
            raise ValueError(
                "a file has no namespaces, and is near already: they are for postgresql:// and redis://"
            )
        from shelflife.client.sqlite import SqliteStore

        return SqliteStore(path)
    named = {} if namespace is None else {"namespace": namespace}
    if scheme in _POSTGRES:
        from shelflife.client.postgres import PostgresStore

        return PostgresStore(fspath(where), near=near, **named)
    from shelflife.client.valkey import ValkeyStore

    return ValkeyStore(
        fspath(where).replace("valkey", "redis", 1) if scheme.startswith("valkey") else fspath(where),
        near=near,
        **named,
    )
