"""A memory in a file that commands look at, and how they are run."""

from shelflife.cli import main
from shelflife.client import SqliteStore
from tests.client.entries import entry, put

ORIGIN, OTHER = "https://a.example:443", "https://b.example:443"


def memory_in(folder):
    """The path of a memory of three fixes of two servers."""
    store = SqliteStore(folder / "memory.db")
    for origin, one in (
        (ORIGIN, entry("basic", root=ORIGIN)),
        (ORIGIN, entry("pro", "P2", root=ORIGIN)),
        (OTHER, entry(root=OTHER, type="B")),
    ):
        put(store, one, tags=["all"], root=origin)
    store.close()
    return str(folder / "memory.db")


def run(capsys, *arguments):
    """What comes of a command on a memory."""
    status = main(["memory", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err
