"""Forking with files open: nobody is in the middle of using them then, and the child begins anew."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import ref

__all__ = ["Forked", "Locking", "mind_forks"]


class Forked:
    """Something that another thread may be using when a process forks. It is told of every fork, as long as it lives."""

    def before_fork(self) -> None:
        """Let nobody begin to use it, and wait until nobody does: a child whose library was in the middle of something hangs for ever."""

    def after_fork_in_parent(self) -> None:
        """Go on as before."""

    def after_fork_in_child(self) -> None:
        """Begin anew: locks that another thread held, and connections of the parent, are of no use to a child."""


_minded: set[ref[Any]] = set()
"""A plain set, for it is copied in one step: others may be added by another thread while one forks."""


def mind_forks(forked: Forked) -> None:
    """Have these methods called around every fork, as long as the object lives."""
    _minded.add(ref(forked, _minded.discard))


class Locking(Forked):
    """Keeps what it has under a lock that nobody holds while a process forks. So the child gets it whole, with a lock of its own.

    Under the lock no other one of this kind is waited for: a fork takes them all, in any order. What a subclass needs around a fork it
    sets before it calls this: another thread may fork as soon as it has.
    """

    def __init__(self, new_lock: Callable[[], Any] = threading.Lock) -> None:
        self._new_lock = new_lock
        self._lock = new_lock()
        mind_forks(self)

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = self._new_lock()


_forking = threading.local()
"""What a thread that forks has told so: others may come while it waits for one of them, and must not be told the end of it."""


def _before() -> None:
    living = (one() for one in _minded.copy())
    _forking.told = sorted((forked for forked in living if forked is not None), key=id)
    for forked in _forking.told:
        forked.before_fork()


def _after_in_parent() -> None:
    for forked in vars(_forking).pop("told"):
        forked.after_fork_in_parent()


def _after_in_child() -> None:
    for forked in vars(_forking).pop("told"):
        forked.after_fork_in_child()


with suppress(AttributeError):  # where processes cannot be forked
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
