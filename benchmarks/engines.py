"""A PostgreSQL and a Valkey of the benchmark's own, for as long as it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.engines import engine

__all__ = ["Engines", "engines", "postgres"]

_POSTGRES = {"fsync": "on", "shared_buffers": "128MB"}
"""As it comes: what it has committed survives a power cut."""

_VALKEY = {"appendfsync": "everysec"}
"""As its documents suggest: a power cut may take the last second with it."""


class Engines(NamedTuple):
    """Where they are."""

    postgres: str
    valkey: str


@contextmanager
def engines() -> Iterator[Engines]:
    """Both, in processes that end with this one."""
    with postgres() as address, engine("valkey", **_VALKEY) as valkey:
        yield Engines(address, valkey.url)


@contextmanager
def postgres() -> Iterator[str]:
    """PostgreSQL alone."""
    with engine("postgres", **_POSTGRES) as started:
        yield started.url
