"""Stores of all kinds, in engines that are started when they are first needed."""

from shelflife.client import InProcessStore, SqliteStore

__all__ = ["store_of"]


class _InProcess(InProcessStore):
    def close(self):
        """There is nothing to let go of."""


def store_of(kind, fixture, folder, **settings):
    """A new and empty store; `fixture` gives the address of an engine."""
    if kind == "in process":
        return _InProcess()
    if kind == "SQLite":
        return SqliteStore(folder / "memory.db")
    if kind == "PostgreSQL":
        from shelflife.client.postgres import PostgresStore

        patient = (
            "&connect_timeout=30"  # the machine may be busy; what a store does then has tests of its own
        )
        return PostgresStore(fixture("postgres_url") + patient, **settings)
    from shelflife.client.valkey import ValkeyStore

    return ValkeyStore(fixture("valkey_url"), **settings)
