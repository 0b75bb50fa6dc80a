"""What one request sees of the contract, and what became of its check."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shelflife.contract.preconditions import Precondition, Verdict
from shelflife.server.counting import Counts, Result, result_of
from shelflife.server.errors import leaves_of
from shelflife.server.faces import Face
from shelflife.server.models import DICTIONARY, Reader
from shelflife.server.operations import Operation
from shelflife.server.policies import Policy
from shelflife.server.reads import Tables
from shelflife.server.stamps import Stamp
from shelflife.server.state import State

__all__ = ["LONGEST_KEPT", "UNSTAMPED", "Checked", "Listening", "Pin", "Shown"]

LONGEST_KEPT = 1024 * 1024
"""How much of a body is kept. What was cut off is no JSON, and cannot be taken for the whole."""

UNSTAMPED = frozenset({401, 403, 405, 407, 429})
"""Statuses by which an app says that a client may not ask, or not now. Such a response tells nothing of the
contract."""

Listening = Callable[[Any, Any], Awaitable[None]]
"""Tells whoever has asked for a feed, by what the server gave for receiving and sending."""


class Shown(msgspec.Struct, frozen=True, eq=False):
    """What a request is shown: a state, and all that goes with it. It is put together once for most requests, so that each has only this to
    look at."""

    state: State
    face: Face
    """What the state shows to the client."""
    stamp: Stamp
    """What a response carries."""
    counts: Counts
    """Where it is counted what becomes of requests."""
    is_heard: bool = True
    """Whether what a client sends is kept. Without a policy nobody asks for it."""
    is_plain: bool = False
    """Whether nothing goes with it, and there is something for a response to carry."""
    tables: Tables | None = None
    """What policies see of the state at first, where that is at hand."""
    policies: Sequence[Policy] | None = None
    """Those that are for a request, where they are the same for each, and nobody wants to know who makes it."""
    is_of_a_shared_log: bool = False
    """Whether it has to be looked at each time how long ago that was read."""
    readiness: object = None
    """As of which readiness of the provider this is."""


class Pin:
    """One request: the state that it sees from start to end, and what its check has found.

    The middleware makes it before the app is called and looks at it when the app answers; `Provider.check` writes into it.
    Whoever makes one sets what is known of it, and the rest stands in the class: most requests set little, and an attribute is set and read
    sooner than any other field is.
    """

    shown: Shown
    find: Callable[..., Operation | None]
    """Finds the operation. It is called without an argument, unless a kind of pin of its own has something to tell it: in ASGI that is the
    scope and the path."""
    is_plain: bool = False
    """Whether there is nothing to it but what it sees and what its response carries, the members of the stamp: the client says nothing to
    the contract, and no check has failed."""
    precondition: Precondition | None = None
    """What the client wants to be sure of before the request is carried out."""
    is_at_the_end: bool = True
    """Whether the state is the one at the end of the log, where that was to be found out. Else nothing can be sure."""
    is_out_of_date: bool = False
    """Whether the log has been out of reach for too long: then the request is judged as ever, and nothing is told to be kept."""
    verdict: Verdict | None = None
    """The verdict of the first check on the precondition."""
    body: bytes | bytearray = b""
    """What the client has sent so far, as far as it is kept."""
    has_checked: bool = False
    """Whether the request has come as far as a check: the app has decided who is asking."""
    has_passed: bool = False
    """Whether it was counted that a check has let it through. A handler may check a request again."""
    counted: set[object] | None = None
    """What was counted for its client of what was let through. A request may be checked for several operations, and for each again."""
    has_violations: bool = False
    """Whether the app was told of violations, and may tell the client."""
    has_run: bool = False
    """Whether an endpoint has been called whose successes carry stamps, in frameworks where that can be seen."""
    is_handed_on: bool = False
    """Whether a contract further inside has taken the request: what the app answers is of that one alone."""
    is_over: bool = False
    """Whether the request has been answered. A task that outlives it has no request."""
    failures: tuple[Exception, ...] = ()
    """What `check` has raised. A failure that the app does not handle is answered for it."""
    is_own_answer: bool = False
    """Whether the response at hand is the contract's own, and needs no stamp."""
    headers: Callable[[], Mapping[str, str]] = dict
    """The headers of the request, by lower-case name, for whoever wants to know who is asking. Most requests need none of them."""
    listening: Listening | None = None
    """Set by the endpoint of the feed, which begins once the app is done."""

    def hand_on(self) -> None:
        """Leave the request to a contract further inside, if no check comes after this. A precondition, too, is about the state of that one."""
        self.is_handed_on, self.is_plain, self.verdict = True, False, None

    def let_go(self) -> None:
        """Let go of what the request was asked with. A server may keep the context of a request, and this in it, long after that: a timer
        of uvicorn does. What hangs on it would be kept as well, and looked through by the garbage collector again and again."""
        self.body, self.headers = b"", dict
        self.failures = ()  # their tracebacks lead back to this

    def find_operation(self) -> Operation | None:
        """The operation that the app has found for the request, once a handler runs; None when it cannot be told."""
        return self.find()

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
        is_success = 200 <= status < 300 or status == 304
        if (
            self.is_own_answer
            or self.is_handed_on
            or (not is_success and (status in UNSTAMPED or status >= 500))
        ):
            return False
        if self.shown.stamp.is_no_news and not self.has_violations:
            return False
        if self.has_checked or not is_success:
            return self.has_checked
        if self.has_run:
            return True
        operation = self.find_operation()
        return operation is not None and operation.is_stamped and not operation.notes_runs

    def asked_for(self) -> Reader | None:
        """How the body was read for the handler, as far as that is known."""
        operation = self.find_operation()
        return DICTIONARY if operation is None else operation.body

    def hear(self, body: bytes) -> None:
        """Keep what the client sends, unless that is so much that no policy is about it."""
        if not self.body:
            is_kept_as_it_is = type(body) is bytes and len(body) <= LONGEST_KEPT
            self.body = body if is_kept_as_it_is else bytes(body[: LONGEST_KEPT + 1])
        elif len(self.body) <= LONGEST_KEPT:
            self.body = bytearray(self.body) if type(self.body) is bytes else self.body
            self.body += body[: LONGEST_KEPT + 1]


class Checked(NamedTuple):
    """What has come of a check."""

    pin: Pin
    """The request."""

    failure: Exception | None
    """What was raised; None where it was let through. An app that asks for violations gets them and no error."""

    @property
    def result(self) -> Result:
        """The same in a word."""
        return "passed" if self.failure is None else result_of(self.failure)
