"""Forking with files open: nobody is in the middle of using them then, and the child begins anew."""

import os
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

__all__ = ["Forked", "mind_forks"]


class Forked(Protocol):
    """Something that another thread may be using when a process forks."""

    def before_fork(self) -> None:
        """Let nobody begin to use it, and wait until nobody does: a child whose library was in the middle of something hangs for ever."""

    def after_fork_in_parent(self) -> None:
        """Go on as before."""

    def after_fork_in_child(self) -> None:
        """Begin anew: locks that another thread held, and connections of the parent, are of no use to a child."""


_minded: WeakSet[Any] = WeakSet()


def mind_forks(forked: Forked) -> None:
    """Have these methods called around every fork, as long as the object lives."""
    _minded.add(forked)


def _calling(method: str) -> Any:
    return lambda: [getattr(forked, method)() for forked in sorted(_minded, key=id)]


with suppress(AttributeError):  # where processes cannot be forked
    os.register_at_fork(
        before=_calling(Forked.before_fork.__name__),
        after_in_parent=_calling(Forked.after_fork_in_parent.__name__),
        after_in_child=_calling(Forked.after_fork_in_child.__name__),
    )
