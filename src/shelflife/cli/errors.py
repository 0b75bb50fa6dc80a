"""The one error of the command line, and what becomes one."""

from collections.abc import Iterator
from contextlib import contextmanager

from shelflife.errors import ShelflifeError

__all__ = ["CommandError", "needing"]


class CommandError(ShelflifeError):
    """What went wrong and what to do about it, in one sentence."""


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """A block of imports that need an extra."""
    try:
        yield
    except ImportError as error:
        raise CommandError(
            f"this command needs more than is installed: pip install 'shelflife[{extra}]'"
            f" ({error.name} is missing)"
        ) from error
