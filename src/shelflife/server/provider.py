"""The provider: everything an API needs to give its fixes a shelf life, in one object."""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, overload

import msgspec

from shelflife.contract import Level, ReloadReport, Row, Rule
from shelflife.server.disclosure import Disclosure
from shelflife.server.errors import PolicyFailed, UnknownTable, UsageError
from shelflife.server.feedback import ErrorForm, Feedback
from shelflife.server.limits import ReloadLimit
from shelflife.server.policies import Policy, PolicyFunction, Rejected, Violation, evaluate
from shelflife.server.reads import Tables
from shelflife.server.registry import Registry
from shelflife.server.signing import Lineage, Signer
from shelflife.server.state import Face, State
from shelflife.server.statefile import StateFile

__all__ = ["Pin", "Provider", "TableSource"]

_SHORTEST_SIGNED_S = 60

TableSource = Callable[[], Mapping[str, Row]]
"""Reads a table from where it lives; called again by `Provider.refresh`."""


class Pin:
    """What one request sees, and how its check ended."""

    __slots__ = ("failure", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.failure: Rejected | PolicyFailed | None = None
        """What `check` has raised; a framework may turn it into a 500 of its own on the way."""


class Provider:
    """Tables, rules and policies of one API, and how its answers are written."""

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Row] | TableSource],
        rules: Iterable[Rule] = (),
        *,
        versions: Mapping[str, str] | None = None,
        level: int = Level.FINGERPRINT,
        errors: ErrorForm = "json",
        paper_only: bool = False,
        admin_token: str | None = None,
        state_file: str | Path | None = None,
        most_reload_bytes: int = 64 * 1024 * 1024,
        reloads_per_minute: int | None = None,
        repairs: Collection[str] = (),
        signer: Signer | None = None,
        signed_for_s: int = 24 * 3600,
        clock: Callable[[], float] = time.time,
        disclosure: Disclosure | None = None,
    ) -> None:
        """Declare what the API's policies consult.

        `versions` are the tables' first versions; where none is given it is made from the content, so that other
        rows after a restart are another version. Without an `admin_token` the operator's endpoints are off. With a
        `state_file` reloads survive a restart; those rows that are declared otherwise than at the last start are set
        anew, as by a reload, and no others. `reloads_per_minute` bounds the reloads over HTTP that change something.
        `repairs` are operations, as `POST /subscriptions`, whose requests the server mends itself where a client prefers that; their handlers
        must check before they do anything. A `signer` vouches for every state that clients ask about, for `signed_for_s` seconds
        at a time; that needs a `state_file`, for numbers that were given out must survive a restart. With a `disclosure` clients are shown aliases
        in place of names and keys; to sign as well, it must name its clients by more than their credentials.
        """
        if admin_token is not None and not re.fullmatch(r"[\x21-\x7e]+", admin_token):
            raise UsageError(
                "an admin token is printable ASCII without spaces; give None to turn the admin endpoints off"
            )
        if errors not in ("json", "problem"):
            raise UsageError(f"errors are written as json or as problem, not as {errors!r}")
        try:
            self.feedback = Feedback(Level(level), errors, paper_only)
        except ValueError:
            raise UsageError(f"there is no wire level {level!r}; there are 0, 1, 4, 5 and 6") from None
        if disclosure is not None and not isinstance(disclosure, Disclosure):
            raise UsageError(f"a disclosure is a Disclosure(secret), not {type(disclosure).__name__}")
        if signer is not None and not callable(getattr(signer, "sign", None)):
            raise UsageError(
                f"a signer is a SigningKey, not {type(signer).__name__}; see SigningKey.from_file"
            )
        if signer is not None and state_file is None:
            raise UsageError("a signer needs a state file: signed states are numbered across restarts")
        if signer is not None and self.level == Level.PLAIN_TEXT:
            raise UsageError("at Level 0 there are no states to sign")
        if signer is not None and disclosure is not None and not disclosure.has_named_clients:
            raise UsageError(
                "to sign, a disclosure needs client=: other credentials would be shown other states of the same number"
            )
        if signed_for_s < _SHORTEST_SIGNED_S:
            raise UsageError(f"states are signed for at least {_SHORTEST_SIGNED_S} s")
        self.admin_token = admin_token
        self.most_reload_bytes = most_reload_bytes
        self.repaired_operations = frozenset(repairs)
        self.disclosure = disclosure
        self.reload_limit = None if reloads_per_minute is None else ReloadLimit(reloads_per_minute)
        self._sources = {name: rows for name, rows in tables.items() if callable(rows)}
        rows_by_table = {name: rows() if callable(rows) else rows for name, rows in tables.items()}
        self._state_file = None if state_file is None else StateFile(state_file)
        try:
            self.registry = Registry(rows_by_table, rules, versions=versions, state_file=self._state_file)
            self.lineage: Lineage | None = None
            """The signed states, where there is a signer."""
            if signer is not None and self._state_file is not None:
                self.lineage = Lineage(
                    self.registry, self.level, signer, self._state_file, signed_for_s, clock
                )
        except BaseException:
            self.close()
            raise
        self._policies: list[Policy] = []
        self._concerned: dict[str | None, list[Policy]] = {}
        self._views = (self.registry.state, Tables(self.registry.state))
        """What policies see of a state at first. Kept in the state itself it would keep that alive in a cycle."""
        self._refreshing = threading.Lock()
        self.pinned: ContextVar[Pin | None] = ContextVar("shelflife_pin", default=None)
        """What the request at hand sees; set by the middleware."""

    def close(self) -> None:
        """Let go of the state file, if there is one."""
        if self._state_file is not None:
            self._state_file.close()

    @property
    def level(self) -> Level:
        """What goes on the wire."""
        return self.feedback.level

    @property
    def state(self) -> State:
        """The state that the request at hand sees; outside of a request, the current one."""
        pin = self.pinned.get()
        return self.registry.state if pin is None else pin.state

    def face(self, state: State, headers: Mapping[str, str]) -> Face:
        """What a state shows to the client whose request has these headers, by lower-case name."""
        if self.disclosure is None:
            return state.face(self.level)
        return self.disclosure.face(state, self.level, headers)

    @overload
    def policy(self, function: PolicyFunction, /) -> PolicyFunction: ...
    @overload
    def policy(self, /, *, operation: str | None = None) -> Callable[[PolicyFunction], PolicyFunction]: ...
    def policy(
        self, function: PolicyFunction | None = None, /, *, operation: str | None = None
    ) -> PolicyFunction | Callable[[PolicyFunction], PolicyFunction]:
        """Make a function a policy, for every checked request or for those of one operation.

        It gets the request's fields and the tables, and returns a `fix(...)`, or None when all is well. The first line of its
        docstring is what a person is told, at Level 0 and in the `detail` of a problem.
        """

        def register(function: PolicyFunction) -> PolicyFunction:
            self._policies.append(Policy.from_function(function, operation))
            self._concerned.clear()
            return function

        return register if function is None else register(function)

    def violations(self, request: Any, operation: str | None = None) -> list[Violation]:
        """The policies that a request violates, each with its fix."""
        return self._violations(request, operation, self.state)

    def fixes_for(self, request: Mapping[str, Any], operation: str) -> list[Violation]:
        """What would be suggested for a request of which only some fields may be known; a policy that needs more says nothing."""
        violations: list[Violation] = []
        for policy in self._policies:
            if policy.operation in (None, operation):
                with suppress(PolicyFailed):
                    violations += evaluate([policy], request, self.state)
        return violations

    def check(self, request: Any, operation: str | None = None) -> None:
        """Raise `Rejected` when the request violates a policy; the middleware makes the answer of it.

        The request is a mapping, or a pydantic model, dataclass or msgspec struct. Of a pydantic model, policies see
        what the client sent, by its wire names: a field left at its default is absent.
        """
        pin = self.pinned.get() or Pin(self.registry.state)
        try:
            violations = self._violations(request, operation, pin.state)
            if violations:
                raise Rejected(violations, pin.state)
        except (Rejected, PolicyFailed) as failure:
            pin.failure = failure
            raise

    def refresh(self, table: str, version: str | None = None) -> ReloadReport:
        """Read a table again from its source, and reload it."""
        if table not in self.registry.state.tables:
            raise UnknownTable(table)
        if table not in self._sources:
            raise UsageError(f"the table {table} was not given as a source that can be read again")
        with self._refreshing:
            return self.registry.reload_table(table, self._sources[table](), version=version)

    @contextmanager
    def one_state(self) -> Iterator[State]:
        """Within this block `state`, `check` and `violations` see one state of the world, whatever is reloaded."""
        state = self.state
        token = self.pinned.set(Pin(state))
        try:
            yield state
        finally:
            self.pinned.reset(token)

    def _violations(self, request: Any, operation: str | None, state: State) -> list[Violation]:
        concerned = self._concerned.get(operation)
        if concerned is None:
            concerned = self._concerned[operation] = [
                policy for policy in self._policies if policy.operation in (None, operation)
            ]
        views = self._views
        if views[0] is not state:
            views = self._views = (state, Tables(state))
        return evaluate(concerned, _fields_of(request), state, views[1])


def _fields_of(request: Any) -> Mapping[str, Any]:
    if type(request) is dict:
        return request
    if hasattr(request, "model_dump"):
        fields = request.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if type(fields) is dict:
            return fields
    else:
        fields = request if isinstance(request, Mapping) else msgspec.to_builtins(request)
    if not isinstance(fields, Mapping):
        raise UsageError(f"a request is checked as an object of fields, not as {type(request).__name__}")
    return fields
