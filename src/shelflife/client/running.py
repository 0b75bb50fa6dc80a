"""One run of a tool: the headers that it may send, how it has ended, and whether it is known that nothing was done."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from shelflife.client.asking import Reply
from shelflife.client.outcomes import Outcome, is_open
from shelflife.client.sending import Call, Send
from shelflife.contract.positions import AT_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER, verdict_in

__all__ = ["Counted", "Running", "contract_headers"]

_headers: ContextVar[Mapping[str, str]] = ContextVar("the headers of the tool that is running")


def contract_headers() -> dict[str, str]:
    """Inside a tool that runs behind a memory: what to send with its HTTP request. With nothing to send, and elsewhere, it is empty."""
    return dict(_headers.get({}))


class Counted(str):
    """The value of a header that counts how often it is written to a connection. Whoever copies it leaves the count behind, at 0.

    The standard library, on which requests stands, encodes a header whenever it writes it, and as nobody else does. httpx2 and httpx
    encode one when a client or a request is made; what writes it then makes plain bytes of that.
    """

    sent_count = 0

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        encoded = _Encoded(super().encode(encoding, errors))
        encoded.of = self
        self.sent_count += encoding == "latin-1"
        return encoded


class _Encoded(bytes):
    of: Counted

    def __bytes__(self) -> bytes:
        self.of.sent_count += 1
        return self[:]


class Running:
    """The run of a tool that is going on, or was the last."""

    def __init__(
        self,
        call: Call,
        given: Callable[[Send], dict[str, Any]],
        heard: Callable[..., Outcome],
    ) -> None:
        """`given` tells what the tool is run with, and `heard` what its outcome says."""
        self.call = call
        self._given, self._heard = given, heard
        self._is_carrying = False
        self._precondition = Counted()
        self._sent = self._precondition
        self._error: Exception | None = None
        self._last = Outcome(None, None)
        self._is_error = False

    def begin(self, send: Send) -> dict[str, Any]:
        """It is to be run with these remembered values. Gives all that it is given."""
        self._is_carrying, self._error = bool(send.carried), None
        self._precondition = Counted(send.headers.get(PRECONDITION_HEADER, ""))
        self._sent = self._precondition or Counted(send.headers.get(AT_HEADER, ""))
        return self._given(send)

    @contextmanager
    def begun(self, send: Send) -> Iterator[tuple[dict[str, Any], Mapping[str, str]]]:
        """While it runs, with what it is given and the headers for it. What it raises is its outcome."""
        given, headers = self.begin(send), send.headers
        if self._sent:
            headers = {**headers, PRECONDITION_HEADER if self._precondition else AT_HEADER: self._sent}
        before = _headers.set(headers)
        try:
            yield given, headers
        except Exception as error:  # noqa: BLE001 - it is raised again once the memory has seen it
            self._error = error
        finally:
            _headers.reset(before)

    def ended(self, outcome: Any, *, is_error: bool = False) -> Reply | None:
        """It has returned this, or has raised. Gives what that says of the contract, which is taken out of it."""
        self._last = self._heard(outcome if self._error is None else self._error, is_error=is_error)
        self._is_error = is_error or self._error is not None or self._last.is_error
        return self._last.reply

    @property
    def outcome(self) -> Any:
        """What was returned at last; None where it was raised."""
        return self._last.shown if self._error is None else None

    def shown(self) -> Any:
        """What was returned, as a model is shown it; what was raised is raised."""
        if self._error is not None:
            raise self._error
        return self._last.shown

    @property
    def is_unexplained(self) -> bool:
        """Whether it has failed with remembered values, and nothing that can be read says what is wrong: it may be these."""
        return self._is_carrying and self._last.is_unexplained

    @property
    def is_unseen(self) -> bool:
        """Whether it has ended well with remembered values, and nobody has seen that it has sent what makes it conditional.

        One that never sends it never learns a position, and so has no precondition to send either.
        """
        is_met = self._last.reply is not None and verdict_in(self._last.reply.headers) == "met"
        is_asked_for = self.call.conditional and self._is_carrying
        return is_asked_for and not self._is_error and not is_met and not self._sent.sent_count

    def is_done(self) -> bool:
        """Whether it has returned, and no failure can be seen. What is still to run or to be read, or another's response, tells nothing."""
        return not (self._is_error or self._last.source is not None or is_open(self._last.shown))

    def is_undone(self) -> bool:
        """Whether it is known that nothing was done: the precondition was sent once, and with the very request that was refused.

        A client may send a request again whose answer got lost. That the last of them was refused says nothing of the first.
        """
        source, is_only = self._last.source, self._last.is_only
        is_the_one = (
            source is not None and source.origin is not None and source.precondition == self._precondition
        )
        return is_only or (is_the_one and self._precondition.sent_count == 1)
