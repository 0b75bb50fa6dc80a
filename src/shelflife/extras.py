"""Optional parts: when one is missing, the error names the extra that brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needing"]


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """A block of imports that an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("shelflife"):
            raise
        missing = error.name.partition(".")[0]
        raise ModuleNotFoundError(
            f"this needs more than is installed: pip install 'shelflife[{extra}]' ({missing} is missing)",
            name=missing,
        ) from error
