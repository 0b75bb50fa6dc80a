"""What one request sees of the contract, and what became of its check."""

from collections.abc import Callable, Mapping

from shelflife.contract.preconditions import Precondition, Verdict
from shelflife.server.errors import leaves_of
from shelflife.server.faces import Face
from shelflife.server.models import DICTIONARY, Reader
from shelflife.server.operations import Operation
from shelflife.server.stamps import Stamp
from shelflife.server.state import State

__all__ = ["UNSTAMPED", "Listening", "Pin"]

_LONGEST_KEPT = 1024 * 1024
"""How much of a body is kept. What was cut off is no JSON, and cannot be taken for the whole."""

UNSTAMPED = frozenset({401, 403, 405, 407, 429})
"""Statuses by which an app says that a client may not ask, or not now. Such a response tells nothing of the
contract."""

Listening = tuple[Mapping[str, str], str]
"""The headers and the query of a request for the change feed that the app has let through."""


class Pin:
    """One request: the state that it sees from start to end, and what its check has found.

    The middleware makes it before the app is called and looks at it when the app answers; `Provider.check` writes into it.
    """

    __slots__ = (
        "body", "face", "failures", "find_operation", "has_checked", "has_run", "has_violations", "headers", "is_at_the_end",
        "is_heard", "is_out_of_date", "is_over", "is_own_answer", "listening", "precondition", "stamp", "state", "verdict",
    )  # fmt: skip

    def __init__(
        self, state: State, face: Face, stamp: Stamp, find_operation: Callable[[], Operation | None]
    ) -> None:
        self.state = state
        self.face = face
        """What the state shows to the client."""
        self.stamp = stamp
        """What a response carries."""
        self.find_operation = find_operation
        """Gives the operation that the app has found for the request, once a handler runs; None when it cannot be told."""
        self.precondition: Precondition | None = None
        """What the client wants to be sure of before the request is carried out."""
        self.is_at_the_end = True
        """Whether the state is the one at the end of the log, where that was to be found out. Else nothing can be sure."""
        self.is_out_of_date = False
        """Whether the log has been out of reach for too long: then the request is judged as ever, and nothing is told to be kept."""
        self.verdict: Verdict | None = None
        """The verdict of the first check on the precondition."""
        self.is_heard = True
        """Whether what the client sends is kept. Without a policy nobody asks for it."""
        self.body: bytes | bytearray = b""
        """What the client has sent so far, as far as it is kept."""
        self.has_checked = False
        """Whether the request has come as far as a check: the app has decided who is asking."""
        self.has_violations = False
        """Whether the app was told of violations, and may tell the client."""
        self.has_run = False
        """Whether the app's own endpoint has been called, in frameworks where that can be seen."""
        self.is_over = False
        """Whether the request has been answered. A task that outlives it has no request."""
        self.failures: tuple[Exception, ...] = ()
        """What `check` has raised. A failure that the app does not handle is answered for it."""
        self.is_own_answer = False
        """Whether the response at hand is the contract's own, and needs no stamp."""
        self.headers: Callable[[], Mapping[str, str]] = dict
        """The headers of the request, by lower-case name, for whoever wants to know who is asking. Most requests need none of them."""
        self.listening: Listening | None = None
        """Set by the endpoint of the feed, which begins once the app is done."""

    def failure_in(self, error: BaseException) -> Exception | None:
        """What `check` has raised for this request, if nothing else came out of the app. A task group puts it into a group."""
        by_id = {id(failure): failure for failure in self.failures}
        leaves = [by_id.get(id(leaf)) for leaf in leaves_of(error)]
        return None if None in leaves else leaves[0]

    def may_be_stamped(self, status: int) -> bool:
        """Whether a response may tell of the contract.

        Errors and redirections may come from a login, whatever they look like. They tell of the contract only when the
        request has come as far as `check`.
        """
        if status in UNSTAMPED or status >= 500 or self.is_own_answer:
            return False
        if self.stamp.is_no_news and not self.has_violations:
            return False
        if self.has_checked or not (200 <= status < 300 or status == 304):
            return self.has_checked
        operation = self.find_operation()
        return operation is not None and operation.is_stamped and (self.has_run or not operation.notes_runs)

    def asked_for(self) -> Reader | None:
        """How the body was read for the handler, as far as that is known."""
        operation = self.find_operation()
        return DICTIONARY if operation is None else operation.body

    def hear(self, body: bytes) -> None:
        """Keep what the client sends, unless that is so much that no policy is about it."""
        if not self.body:
            self.body = bytes(body[: _LONGEST_KEPT + 1])  # most come in one piece, which is not copied
        elif len(self.body) <= _LONGEST_KEPT:
            self.body = bytearray(self.body) if type(self.body) is bytes else self.body
            self.body += body[: _LONGEST_KEPT + 1]
