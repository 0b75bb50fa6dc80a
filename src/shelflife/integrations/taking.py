"""What a program hands to an integration: another kind of thing is told in a sentence, where it is handed over."""

__all__ = ["takes"]


def takes(sentence: str, *given: tuple[object, type]) -> None:
    """`TypeError` where something that was given is not of its kind: what takes which, and what it has got instead."""
    for value, kind in given:
        if not isinstance(value, kind):
            raise TypeError(f"{sentence}, and not {type(value).__module__}.{type(value).__qualname__}")
