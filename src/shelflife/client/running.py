"""One run of a tool: the headers that it may send, how it has ended, and whether it is known that nothing was done."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from shelflife.client.asking import Reply
from shelflife.client.outcomes import Outcome
from shelflife.client.sending import Send
from shelflife.contract.preconditions import PRECONDITION_HEADER

__all__ = ["Running", "contract_headers"]

_running: ContextVar[Mapping[str, str]] = ContextVar("the headers of the tool that is running")


def contract_headers() -> dict[str, str]:
    """Inside a tool that runs behind a memory: what to send with its HTTP request. With nothing to send, and elsewhere, it is empty."""
    return dict(_running.get({}))


class _Counted(str):
    """The value of a header that counts the requests it goes out with: each has to turn it into bytes."""

    request_count = 0

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        self.request_count += 1
        return super().encode(encoding, errors)


class Running:
    """The run of a tool that is going on, or was the last."""

    def __init__(self, heard: Callable[..., Outcome], passes: tuple[type[Exception], ...] = ()) -> None:
        self._heard, self._passes = heard, passes
        self._is_carrying = False
        self._precondition = _Counted()
        self._error: Exception | None = None
        self._last = Outcome(None, None)
        self.outcome: Any = None

    def begin(self, send: Send) -> Mapping[str, str]:
        """It is run with these remembered values. Gives the headers for it."""
        self._is_carrying = bool(send.carried)
        self._precondition = _Counted(send.headers.get(PRECONDITION_HEADER, ""))
        return (
            {**send.headers, PRECONDITION_HEADER: self._precondition} if self._precondition else send.headers
        )

    @contextmanager
    def by(self, headers: Mapping[str, str]) -> Iterator[None]:
        """While it runs, with these headers. What it raises is its outcome, but for what only passes through it."""
        before, self._error = _running.set(headers), None
        try:
            yield
        except self._passes:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again once the memory has seen it
            self._error = error
        finally:
            _running.reset(before)

    def read(self, *, is_error: bool = False) -> Reply | None:
        """What the outcome says of the contract, which is taken out of it."""
        outcome = self.outcome if self._error is None else self._error
        self._last = self._heard(outcome, is_error=is_error)
        self.outcome = self._last.shown
        return self._last.reply

    def shown(self) -> Any:
        """What was returned; what was raised is raised."""
        if self._error is not None:
            raise self._error
        return self.outcome

    @property
    def is_unexplained(self) -> bool:
        """Whether it has failed with remembered values, and nothing that can be read says what is wrong: it may be these."""
        return self._is_carrying and self._last.is_unexplained

    def is_undone(self) -> bool:
        """Whether it is known that nothing was done: one request had the precondition, and that is the very one that was refused."""
        source, is_only = self._last.source, self._last.is_only
        is_the_one = (
            source is not None and source.origin is not None and source.precondition == self._precondition
        )
        return is_only or (is_the_one and self._precondition.request_count == 1)
