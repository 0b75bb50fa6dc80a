"""Steps over a store on another machine: each takes place in one moment of it."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from shelflife.client.seen import Wanted

__all__ = ["InMoments"]

Step = TypeVar("Step")
Reply = TypeVar("Reply")
Outcome = TypeVar("Outcome")


class InMoments(Generator[Step, Reply, Outcome]):
    """Steps, each in one moment: what a memory looks at between two messages it sees as it is at one time."""

    def __init__(
        self,
        steps: Generator[Step, Reply, Outcome],
        moment: Callable[[Wanted | None], AbstractContextManager[None]],
        wanted: Wanted | None,
    ) -> None:
        """`wanted` is what the first moment is about."""
        self._steps = steps
        self._moment = moment
        self._wanted = wanted

    def send(self, reply: Reply) -> Step:
        wanted, self._wanted = self._wanted, None
        with self._moment(wanted):
            return self._steps.send(reply)

    def throw(self, error: Any, value: Any = None, trace: TracebackType | None = None) -> Step:
        with self._moment(None):
            return self._steps.throw(error)

    def close(self) -> None:
        with self._moment(None):
            self._steps.close()
