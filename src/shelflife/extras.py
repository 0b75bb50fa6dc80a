"""Optional parts: when one is missing, the error names the extra that brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needing"]


@contextmanager
def needing(extra: str, *others: str) -> Iterator[None]:
    """A block of imports that an extra brings, or any of some others does."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("shelflife"):
            raise
        missing = error.name.partition(".")[0]
        instead = f"; {', '.join(others[:-1])} and {others[-1]} bring it too" if others else ""
        raise ModuleNotFoundError(
            f"this needs more than is installed: pip install 'shelflife[{extra}]' ({missing} is missing{instead})",
            name=missing,
        ) from error
