"""The provider: everything an API needs to give its fixes a shelf life, in one object."""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, overload
from weakref import WeakSet

import msgspec

from shelflife.contract import Rule
from shelflife.contract.merging import merged
from shelflife.contract.messages import ReloadReport
from shelflife.contract.names import shown
from shelflife.contract.preconditions import Precondition
from shelflife.server.apps import Apps
from shelflife.server.delta import Row
from shelflife.server.disclosure import Disclosure
from shelflife.server.errors import BadSetting, MalformedRequest, PolicyFailed, UnknownTable, UsageError
from shelflife.server.faces import Face, face_of
from shelflife.server.feed import Feed
from shelflife.server.hints import comparisons_in
from shelflife.server.limits import ReloadBudget, ReloadLimits
from shelflife.server.log import Log
from shelflife.server.pins import Pin
from shelflife.server.policies import (
    Policies,
    Policy,
    PolicyFunction,
    PreconditionFailed,
    Refusal,
    Rejected,
    Violation,
    evaluate,
)
from shelflife.server.reads import Tables
from shelflife.server.registry import Registry
from shelflife.server.signing import Signing
from shelflife.server.sqlite_log import SqliteLog
from shelflife.server.state import State
from shelflife.server.wire import Level, WireFormat
from shelflife.server.workers import worker_count

__all__ = ["Provider", "TableSource"]

_log = logging.getLogger("shelflife")
_advised: WeakSet[PolicyFunction] = WeakSet()
"""Policies whose hints the log has."""

_ROOT = re.compile(r"(https?://[^/\s]+)?(/[\x21-\x7e]*)?")
_WIRE = WireFormat()
_LIMITS = ReloadLimits()

TableSource = Callable[[], Mapping[str, Row]]
"""Reads a table from where it lives; called again by `Provider.refresh`."""


class Provider:
    """Tables, rules and policies of one API, and how its answers are written."""

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Row] | TableSource],
        rules: Iterable[Rule] = (),
        *,
        versions: Mapping[str, str] | None = None,
        admin_token: str | None = None,
        log: str | Path | Log | None = None,
        wire: WireFormat = _WIRE,
        limits: ReloadLimits = _LIMITS,
        signing: Signing | None = None,
        disclosure: Disclosure | None = None,
        root: str | None = None,
    ) -> None:
        """Declare what the API's policies consult.

        `versions` are the tables' first versions. Where none is given it is made from the content, so that other rows
        after a restart are another version. Without an `admin_token` the operator's endpoints are off. With a
        `log`, the path of a file, reloads survive a restart, and all worker processes of a machine share them. Only
        rows whose declaration has changed since the last start are set anew, as by a reload. `wire` says what goes on
        the wire, and `limits` what an operator may send. With `signing` states are signed; that needs a `log`, for
        their numbers must survive a restart.
        With a `disclosure` clients are shown aliases in place of names and keys. `root` is where clients find the
        contract, a path or a whole address, where the app cannot know: behind a gateway that strips a prefix.
        """
        self.admin_token, self.wire, self.limits = admin_token, wire, limits
        self.signing, self.disclosure, self._root = signing, disclosure, root
        self._check_settings(has_log=log is not None)
        self.level = Level(wire.level)
        """What goes on the wire."""
        self.reload_budget = None if limits.per_minute is None else ReloadBudget(limits.per_minute)
        self._sources = {name: rows for name, rows in tables.items() if callable(rows)}
        rows_by_table = {name: rows() if callable(rows) else rows for name, rows in tables.items()}
        shared_log = SqliteLog(log) if isinstance(log, str | Path) else log
        self._lives = 0
        try:
            self.registry = Registry(rows_by_table, rules, versions=versions, log=shared_log)
        except BaseException:
            if shared_log is not None:
                shared_log.close()
            raise
        self.policies = Policies()
        self._views = (self.registry.state, Tables(self.registry.state))
        """What policies see of a state at first. It is not kept in the state, because the cycle would keep
        that alive."""
        self._refreshing = threading.Lock()
        self.feed = Feed(
            self.registry,
            lambda state, headers: self.face(state, headers) if self.speaks_for(state) else None,
        )
        self.pinned: ContextVar[Pin | None] = ContextVar("shelflife_pin", default=None)
        """What the request at hand sees; set by the middleware."""
        self.apps = Apps(self.policies)
        """The apps that it is installed in."""
        self._ready_in = 0
        """The process in which it is ready."""

    def _check_settings(self, *, has_log: bool) -> None:
        """Refuse settings of the wrong kind, and those that do not go together."""
        if self.admin_token is not None and not re.fullmatch(r"[\x21-\x7e]+", self.admin_token):
            raise BadSetting(
                "an admin token is printable ASCII without spaces; give None to turn the admin endpoints off"
            )
        optional = [("signing", Signing, self.signing), ("disclosure", Disclosure, self.disclosure)]
        given = [one for one in optional if one[2] is not None]
        for name, kind, value in (
            ("wire", WireFormat, self.wire),
            ("limits", ReloadLimits, self.limits),
            *given,
        ):
            if not isinstance(value, kind):
                raise BadSetting(f"{name} takes a {kind.__name__}, not {type(value).__name__}")
        if self._root is not None and not _ROOT.fullmatch(self._root):
            raise BadSetting(
                f"a root is a path such as /v1, or an address such as https://api.example/v1, not {self._root!r}"
            )
        if self.signing is not None and not has_log:
            raise BadSetting("signing needs a log: signed states are numbered across restarts")
        if self.signing is not None and self.wire.level == Level.PLAIN_TEXT:
            raise BadSetting("at Level 0 there are no states to sign")
        if self.signing is not None and self.disclosure is not None and self.disclosure.client is None:
            raise BadSetting(
                "to sign, a disclosure needs client=: other credentials would be shown other states of the same number"
            )

    def close(self) -> None:
        """Let go of the log, until it is needed again."""
        self.registry.close()
        self._ready_in = 0  # whoever is served after this follows the log again

    def begin_life(self) -> None:
        """An app that has the contract starts. Every operation that is named must be there."""
        self.be_ready()
        self._lives += 1

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served by this process without more ado."""
        return self._ready_in == os.getpid() and self.apps.are_held

    def be_ready(self) -> None:
        """Before requests are served, in each process anew: hold the policies to the app's routes, and to the log."""
        if self.is_ready:
            return
        self.apps.hold_policies_to_routes()
        self.registry.declare_policies(self.policies.fingerprints)
        self.registry.follow()
        is_new_here = self._ready_in != os.getpid()
        if is_new_here and not self.registry.is_shared and (count := worker_count()) > 1:
            _log.warning(
                "this is one of %d worker processes, and a reload reaches only one of them: give the provider a log,"
                " as in Provider(..., log='state.db')",
                count,
            )
        self._ready_in = os.getpid()

    def end_life(self) -> None:
        """An app that has the contract ends; the last one closes the provider."""
        self._lives -= 1
        if self._lives <= 0:
            self.close()

    @property
    def state(self) -> State:
        """The state that the request at hand sees; outside of a request, the current one."""
        pin = self.pin
        return self.registry.state if pin is None else pin.state

    @property
    def pin(self) -> Pin | None:
        """The request at hand. A task that has outlived the request it was begun in has none."""
        pin = self.pinned.get()
        return None if pin is None or pin.is_over else pin

    def speaks_for(self, state: State) -> bool:
        """Whether the policies that run here are those of a state. Else whatever they say is of no position in the log."""
        does_speak = state.policies == self.policies.fingerprints
        if not does_speak and self._ready_in == os.getpid():
            self.apps.warn_once(
                "this process runs other policies than the log has, and tells no positions: other code was started after it;"
                " if that was older code, start this one again"
            )
        return does_speak

    def root_of(self, root_path: str) -> str:
        """Where the contract lives, for an app that is mounted there."""
        return root_path.rstrip("/") if self._root is None else self._root.rstrip("/")

    def face(self, state: State, headers: Mapping[str, str]) -> Face:
        """What a state shows to the client whose request has these headers, by lower-case name."""
        if self.disclosure is None:
            return face_of(state, self.level)
        return self.disclosure.face(state, self.level, headers)

    @overload
    def policy(self, function: PolicyFunction, /) -> PolicyFunction: ...
    @overload
    def policy(
        self, /, *, operation: str | None = None, version: str | None = None
    ) -> Callable[[PolicyFunction], PolicyFunction]: ...
    def policy(
        self,
        function: PolicyFunction | None = None,
        /,
        *,
        operation: str | None = None,
        version: str | None = None,
    ) -> PolicyFunction | Callable[[PolicyFunction], PolicyFunction]:
        """Make a function a policy, for every checked request or for those of one operation.

        It gets the request's fields and the tables, and returns a `fix(...)`, or None when all is well. The first line
        of its docstring is what a person is told, at Level 0 and in the `detail` of a problem. An operation is a method
        and the path of a route as it is declared, as in `POST /orders/{id}`. What stands in the path for `id` is no
        field of the request: a policy sees what `check` is given. A deploy that changes the code of a policy, or what that
        closes over, changes its fingerprint, and clients ask about its fixes anew. With a `version` of your own, only
        another one does that.
        """

        def register(function: PolicyFunction) -> PolicyFunction:
            self.policies.add(Policy.from_function(function, operation, version))
            self._ready_in = 0
            self.apps.are_held = False
            _advise(function)
            return function

        return register if function is None else register(function)

    def violations(self, request: Any, operation: str | None = None) -> list[Violation]:
        """The policies that a request violates, each with its fix. Outside of a request, say for which operation.

        Inside of one it counts as a check, for an app that answers by itself: call it when it is clear who is asking.
        """
        pin = self.pin
        found = self._violations(_fields_of(request), self.apps.operation_of(operation, pin), self.state)
        if pin is not None:
            pin.has_checked, pin.has_violations = True, pin.has_violations or bool(found)
        return found

    def fixes_for(self, request: Mapping[str, Any], operation: str, state: State) -> list[Violation]:
        """What would be suggested for a request of which some fields may be unknown. A policy that needs
        those says nothing."""
        violations: list[Violation] = []
        for policy in self.policies.concerning(operation):
            with suppress(MalformedRequest, PolicyFailed):
                violations += evaluate([policy], request, state)
        return violations

    def check(self, request: Any, operation: str | None = None) -> None:
        """Raise `Rejected` when the request violates a policy. It is answered for an app that does not handle it.

        Call it when it is clear who is asking, and before anything is done. The request is a mapping, or a pydantic
        model, dataclass or msgspec struct. Of a pydantic model, policies see what the client sent, by its wire names: a
        field left at its default is absent. The operation is that of the request at hand; give it only where the app's
        routes cannot be seen. The first check of a request also judges its precondition, and raises
        `PreconditionFailed`.
        """
        pin = self.pin
        if (
            pin is None
        ):  # right where no app has the contract, as in a test of policies; else a context got lost
            if self.apps:
                raise UsageError(
                    "check does not know its request here; in a thread of a handler, run it by asyncio.to_thread,"
                    " and outside of a request ask for violations(request, operation)"
                )
            state = self.registry.state
            violations = self._violations(_fields_of(request), self.apps.operation_of(operation, None), state)
            if violations:
                raise Rejected(violations, state)
            return
        pin.has_checked = True
        try:
            fields = _fields_of(request)
            concerned = self.apps.operation_of(operation, pin)
            if pin.precondition is not None and pin.verdict is None:
                self._judge(pin, pin.precondition, fields, concerned)
            violations = self._violations(fields, concerned, pin.state)
            if violations:
                raise Rejected(violations, pin.state)
        except (Refusal, MalformedRequest, PolicyFailed) as failure:
            pin.failures.append(failure)
            pin.has_violations = True
            raise

    def refresh(self, table: str, version: str | None = None) -> ReloadReport:
        """Read a table again from its source, and reload it."""
        if table not in self.registry.state.tables:
            raise UnknownTable(table)
        if table not in self._sources:
            raise UsageError(f"the table {table} was not given as a source that can be read again")
        with self._refreshing:
            return self.registry.reload_table(table, self._sources[table](), version=version)

    def _judge(
        self, pin: Pin, precondition: Precondition, fields: Mapping[str, Any], operation: str | None
    ) -> None:
        """Hold a request to its precondition. The fixes are for the request as it was without memory."""
        if pin.is_at_the_end and pin.face.meets(precondition):
            pin.verdict = "met"
            return
        pin.verdict = "failed"
        violations: list[Violation] = []
        with suppress(MalformedRequest, PolicyFailed):
            violations = self._violations(merged(fields, precondition.was), operation, pin.state)
        raise PreconditionFailed(violations, pin.state)

    def _violations(self, fields: Mapping[str, Any], operation: str | None, state: State) -> list[Violation]:
        views = self._views
        if views[0] is not state:
            views = self._views = (state, Tables(state))
        return evaluate(self.policies.concerning(operation), fields, state, views[1])


def _advise(function: PolicyFunction) -> None:
    """Log the hints for a policy, once. The source is read only where somebody would see them."""
    if not _log.isEnabledFor(logging.INFO) or function in _advised:
        return
    for hint in comparisons_in(function):
        _advised.add(function)
        _log.info("the policy %s: %s", function.__name__, hint)


def _fields_of(request: Any) -> Mapping[str, Any]:
    """The fields of what a handler gives to a check. A JSON value without fields is the client's mistake, all
    else the handler's."""
    if type(request) is dict:
        return request
    if request is None or isinstance(request, str | int | float | list):
        raise MalformedRequest(f"the request is {shown(request)}, and not an object of fields")
    if hasattr(request, "model_dump"):
        fields = request.model_dump(mode="json", by_alias=True, exclude_unset=True)
    else:
        try:
            fields = request if isinstance(request, Mapping) else msgspec.to_builtins(request)
        except TypeError:
            fields = None
    if not isinstance(fields, Mapping):
        raise UsageError(f"a request is checked as an object of fields, not as {type(request).__name__}")
    return fields
