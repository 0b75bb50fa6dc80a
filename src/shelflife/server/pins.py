"""What one request sees of the contract, and what became of its check."""

from collections.abc import Callable, Mapping

from shelflife.contract.preconditions import Precondition, Verdict
from shelflife.server.faces import Face, Stamp
from shelflife.server.operations import Operation
from shelflife.server.state import State

__all__ = ["Listening", "Pin"]

Listening = tuple[Mapping[str, str], str]
"""The headers and the query of a request for the change feed that the app has let through."""


class Pin:
    """One request: the state that it sees from start to end, and what its check has found.

    The middleware makes it before the app is called and looks at it when the app answers; `Provider.check` writes into it.
    """

    def __init__(self, state: State, face: Face, find_operation: Callable[[], Operation | None]) -> None:
        self.state = state
        self.face = face
        """What the state shows to the client."""

        self.stamp: Stamp | None = None
        """What a response carries; None at Level 0."""

        self.find_operation = find_operation
        """The operation that the app has found for the request, once a handler runs; None when it
        cannot be told."""

        self.precondition: Precondition | None = None
        """What the client wants to be sure of before the request is carried out."""

        self.verdict: Verdict | None = None
        """The verdict of the first check on the precondition."""

        self.has_checked = False
        """Whether the request has come as far as `check`: the app has decided who is asking."""

        self.has_run = False
        """Whether the app's own endpoint has been called, in frameworks where that can be seen."""

        self.is_over = False
        """Whether the request has been answered. A task that outlives it has no request."""

        self.failures: list[Exception] = []
        """What `check` has raised. A failure that the app does not handle is answered for it."""

        self.is_own_answer = False
        """Whether the response at hand is the contract's own, and needs no stamp."""

        self.listening: Listening | None = None
        """Set by the endpoint of the feed, which begins once the app is done."""
