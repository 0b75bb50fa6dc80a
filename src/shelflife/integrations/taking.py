"""What a program hands to an integration: another kind of thing is told in a sentence, where it is handed over."""

from typing import Any, Self

__all__ = ["MemoryFirst", "takes"]


def takes(sentence: str, *given: tuple[object, type]) -> None:
    """`TypeError` where something that was given is not of its kind: what takes which, and what it has got instead."""
    for value, kind in given:
        if not isinstance(value, kind):
            raise TypeError(f"{sentence}, and not {type(value).__module__}.{type(value).__qualname__}")


class MemoryFirst:
    """Is made of a memory, and then of a transport."""

    _sends_by = ""
    """The method by which a transport of the library sends a request."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        if not given and "memory" not in named:
            raise TypeError(f"a transport takes a Memory, as in {cls.__name__}(Memory())")
        transport = given[1] if len(given) > 1 else named.get("transport")
        if transport is not None and cls._sends_by and not hasattr(transport, cls._sends_by):
            kind = type(transport).__name__
            raise TypeError(
                f"after the Memory comes the transport to watch, which has a {cls._sends_by}, and not {kind};"
                " a guard is given by name: guard="
            )
        return super().__new__(cls)
