"""Steps over a store on another machine: each takes place in one moment of it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from shelflife.client.asking import Fields
from shelflife.client.entries import Root
from shelflife.client.stores import Known

if TYPE_CHECKING:
    from shelflife.client.seen import Wanted

__all__ = ["InMoments", "Remote"]

Step = TypeVar("Step")
Reply = TypeVar("Reply")
Outcome = TypeVar("Outcome")


class Remote(ABC):
    """A store on another machine, where each look is a round trip. It says so itself: a store that passes everything on may have any verb."""

    where: str
    """The engine, as people may see it: without a password."""

    set_backs: Counter[Root]
    """How often a lower revision has shown that the engine has lost writes."""

    @abstractmethod
    def wanted(self, root: Root, operation: str, request: Fields, tags: tuple[str, ...]) -> "Wanted":
        """What is looked at for a request, and counted."""

    @abstractmethod
    def moment(self, wanted: "Wanted | None" = None) -> AbstractContextManager[None]:
        """Until its end, this thread sees each root as it was when it first looked, and its own writes."""

    @abstractmethod
    def guessed(self, root: Root) -> Known | None:
        """What was known of a root when it was last looked at, without asking: others may have written since. None where it was not."""

    @abstractmethod
    def is_still(self, root: Root, revision: int, tags: Sequence[str] = ()) -> bool:
        """Whether a root is at a revision in this moment. These tags are counted with the same look."""


class InMoments(Generator[Step, Reply, Outcome]):
    """Steps, each in one moment: what a memory looks at between two messages it sees as it is at one time."""

    def __init__(
        self,
        steps: Generator[Step, Reply, Outcome],
        moment: "Callable[[Wanted | None], AbstractContextManager[None]]",
        wanted: "Wanted | None",
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
