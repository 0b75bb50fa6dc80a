"""A clock that goes on while the machine sleeps: what counts for some seconds does not count when it wakes."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

__all__ = ["unsleeping_s"]


def _unsleeping() -> Callable[[], float]:
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    with suppress(AttributeError, OSError):  # where there is none, the other one mostly goes on by itself
        clock = partial(time.clock_gettime, getattr(time, name))
        clock()
        return clock
    return time.monotonic


unsleeping_s = _unsleeping()
"""The seconds since some moment, those of sleep among them."""
