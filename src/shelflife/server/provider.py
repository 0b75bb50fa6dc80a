"""The provider: everything an API needs to give its fixes a shelf life, in one object."""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, overload

import msgspec

from shelflife.contract import Rule
from shelflife.contract.messages import ReloadReport
from shelflife.contract.preconditions import Precondition
from shelflife.forks import Forked, mind_forks
from shelflife.server.apps import Apps
from shelflife.server.declaring import GivenTables, TableSource
from shelflife.server.delta import Row
from shelflife.server.disclosure import Disclosure
from shelflife.server.errors import BadSetting, MalformedRequest, PolicyFailed, UsageError
from shelflife.server.faces import Face, face_of
from shelflife.server.feed import Feed
from shelflife.server.given import Given, SeenReaders, at_first_sight
from shelflife.server.keeping_up import STALE_FOR_S
from shelflife.server.limits import ReloadBudget, ReloadLimits
from shelflife.server.log import Log
from shelflife.server.logs import registry_of
from shelflife.server.models import DICTIONARY, Reader
from shelflife.server.pins import Checked, Pin, Shown
from shelflife.server.policies import (
    Fix,
    Policies,
    Policy,
    PolicyFunction,
    PreconditionFailed,
    Refusal,
    Rejected,
    Violation,
    evaluate,
    found_by,
    violations_of,
)
from shelflife.server.reads import Request, Tables
from shelflife.server.refreshing import Refresher
from shelflife.server.registry import Registry
from shelflife.server.resting import ToldFixes
from shelflife.server.scoring import Clients, Scoring
from shelflife.server.signing import Signing
from shelflife.server.stamps import NO_STAMP
from shelflife.server.state import State
from shelflife.server.wire import Level, WireFormat
from shelflife.server.workers import worker_count

__all__ = ["Provider"]

_log = logging.getLogger("shelflife")
_ROOT = re.compile(r"(https?://[^/\s]+)?(/[\x21-\x7e]*)?")
_WIRE = WireFormat()
_LIMITS = ReloadLimits()
_SCORING = Scoring()
_KINDS = {
    "wire": WireFormat,
    "limits": ReloadLimits,
    "signing": Signing,
    "disclosure": Disclosure,
    "scoring": Scoring,
}


class Provider(Forked):
    """Tables, rules and policies of one API, and how its answers are written."""

    def __init__(
        self,
        tables: GivenTables,
        rules: Iterable[Rule] = (),
        *,
        versions: Mapping[str, str] | None = None,
        admin_token: str | None = None,
        log: str | Path | Log | None = None,
        stale_for_s: float = STALE_FOR_S,
        wire: WireFormat = _WIRE,
        limits: ReloadLimits = _LIMITS,
        signing: Signing | None = None,
        disclosure: Disclosure | None = None,
        scoring: Scoring | None = _SCORING,
        admin_page: str | None = "/admin/",
        root: str | None = None,
        strict_policies: bool = False,
    ) -> None:
        """Declare what the API's policies consult.

        - `tables`: by name, the rows of each by their keys, or where they are read from: `csv_file(…)` and its like.
        - `rules`: which values in one table are keys in another.
        - `versions`: the tables' first versions. Where none is given it is made from the content, so that other rows after
          a restart are another version.
        - `admin_token`: what an operator has to show. Without one the operator's endpoints are off.
        - `log`: where changes are kept. With the path of a file, reloads survive a restart, and all worker processes of a
          machine share them; with the URL of a database, as in `postgresql://user@host/name?schema=shop`, those of all
          machines do. At the next start only rows whose declaration has changed are set anew, as by a reload. Without a
          log, reloads are lost when the process ends.
        - `stale_for_s`: for how many seconds a worker that cannot reach its log vouches for what it knows.
        - `wire`: how much goes on the wire, and in which form.
        - `limits`: what an operator may send over HTTP.
        - `signing`: how states are signed. That needs a `log`, for their numbers must survive a restart.
        - `disclosure`: clients are shown aliases in place of names and keys.
        - `scoring`: how clients are named when they are scored by what comes of their fixes, which needs an `admin_token`; None
          turns it off.
        - `admin_page`: the path of the operator's page; None for none.
        - `root`: where clients find the contract, a path or a whole address, where the app cannot know: behind a gateway
          that strips a prefix.
        - `strict_policies`: an app does not start when a policy reads what no version tells of, such as the clock.
        """
        self.admin_token, self.wire, self.limits = admin_token, wire, limits
        self.signing, self.disclosure, self.scoring, self._root = signing, disclosure, scoring, root
        self.admin_page = admin_page
        """The path of the operator's page; None for none."""
        if not 0 < stale_for_s < math.inf:
            raise BadSetting(f"stale_for_s is a number of seconds above 0, not {stale_for_s!r}")
        self._check_settings(has_log=log is not None)
        self.level = Level(wire.level)
        """What goes on the wire."""
        self.reload_budget = None if limits.per_minute is None else ReloadBudget(limits.per_minute)
        self._lives = 0
        self._has_begun = False
        """Whether it is ready in this process, as far as its own policies and log go."""
        self._open(registry_of(tables, rules, versions, log, stale_for_s), tables, strict_policies)
        self._keep_for_operators()
        mind_forks(self)

    def _open(self, registry: Registry, tables: GivenTables, strict_policies: bool) -> None:
        """Make what every request meets: the states, the policies, and what they see."""
        self.registry = registry
        self.counts = self.registry.counts
        """What this process has counted, which is kept for all workers."""
        self.on_checked: list[Callable[[Checked], None]] = []
        """Who is told what has come of every check of a request. They must not raise."""
        self.policies = Policies(are_strict=strict_policies)
        self._views = (self.registry.state, Tables(self.registry.state))
        """What policies see of a state at first. It is not kept in the state, because the cycle would keep
        that alive."""
        self.shown: Shown | None = None
        """What most requests see of the state that was asked for last."""
        self.readiness = object()
        """Another one whenever something has to be made ready again: then what is shown has to be put together anew."""
        self._refresher = Refresher(self.registry, tables)
        self.feed = Feed(
            self.registry,
            lambda state, headers: self.face(state, headers) if self.speaks_for(state) else None,
        )
        self.pinned: ContextVar[Pin | None] = ContextVar("shelflife_pin", default=None)
        """What the request at hand sees; set by the middleware."""
        self.apps = Apps(self.policies, self._be_unready)
        """The apps that it is installed in."""
        self.readers = SeenReaders()

    def _keep_for_operators(self) -> None:
        """Keep what only an operator asks for, and share it with the other workers where there is one."""
        registry, key = self.registry, f"{self.admin_token or ''} {self.registry.state.log_id}".encode()
        self.told_fixes = ToldFixes(key)
        """What was told to clients of late, for operators who want to know what rests on a row."""
        self.clients: Clients | None = None
        """What is seen of clients; None where nobody could look at it."""
        if self.admin_token is None:
            return
        registry.on_beat(self.counts.keep)
        registry.on_beat(self.feed.tell_others)
        registry.on_beat(partial(self.told_fixes.meet, registry))
        if self.scoring is not None:
            self.clients = Clients(self.scoring, key)
            registry.on_beat(partial(self.clients.meet, registry))

    def _check_settings(self, *, has_log: bool) -> None:
        """Refuse settings of the wrong kind, and those that do not go together."""
        if self.admin_token is not None and not re.fullmatch(r"[\x21-\x7e]+", self.admin_token):
            raise BadSetting(
                "an admin token is printable ASCII without spaces; leave it out to turn the admin endpoints off"
            )
        page = self.admin_page
        if page is not None and not re.fullmatch(r"/([\w.~-]+/)*", page, re.ASCII):
            raise BadSetting(f"admin_page is a path that ends with a slash, such as /operator/, not {page!r}")
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and (value is not None or name in ("wire", "limits")):
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
        self._refresher.stop()
        if self.registry.is_followed and self.admin_token is not None:  # the last that the others hear
            self.counts.keep(now=True)
            self.told_fixes.meet(self.registry, now=True)
            if self.clients is not None:
                self.clients.meet(self.registry, now=True)
        self.registry.close()
        self._has_begun = False  # whoever is served after this follows the log again
        self._be_unready()

    def after_fork_in_child(self) -> None:
        """Each process follows the log itself."""
        self._has_begun = False
        self._be_unready()

    def _be_unready(self) -> None:
        """Have the next request look whether all is ready, and what it is shown put together anew. What has changed was noted before: see
        `_show`."""
        self.readiness = object()

    def begin_life(self) -> None:
        """An app that has the contract starts. Every operation that is named must be there."""
        self.be_ready()
        self._lives += 1

    def begin_watch(self) -> None:
        """An app for operators alone starts. It checks no request, so which policies hold is not for it to say: it only follows the log."""
        self.registry.follow()
        self._lives += 1

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served by this process without more ado."""
        return self._has_begun and self.apps.are_held

    def be_ready(self) -> None:
        """Before requests are served, in each process anew: hold the policies to the app's routes, and to the log."""
        if self.is_ready:
            return
        self.apps.hold_policies_to_routes()
        self.registry.declare_policies(self.policies.look())
        self.registry.follow()
        self._refresher.start()
        if not self._has_begun and not self.registry.is_shared and (count := worker_count()) > 1:
            _log.warning(
                "this is one of %d worker processes, and a reload reaches only one of them: give the provider a log,"
                " as in Provider(..., log='state.db')",
                count,
            )
        self._has_begun = True

    def be_at_the_end(self) -> None:
        """The same, and take in what others have appended to the log."""
        self.be_ready()
        self.registry.catch_up()

    def end_life(self) -> None:
        """An app that has the contract ends; the last one closes the provider."""
        self._lives -= 1
        if self._lives <= 0:
            self.close()

    @property
    def state(self) -> State:
        """The state that the request at hand sees; outside of a request, the current one."""
        pin = self.pin
        return self.registry.state if pin is None else pin.shown.state

    @property
    def pin(self) -> Pin | None:
        """The request at hand. A task that has outlived the request it was begun in has none."""
        pin = self.pinned.get()
        return None if pin is None or pin.is_over else pin

    def speaks_for(self, state: State) -> bool:
        """Whether the policies that run here are those of a state. Else whatever they say is of no position in the log."""
        does_speak = state.policies == self.policies.look()
        if not does_speak and self._has_begun:
            self.apps.warn_once(
                "this process runs other policies than the log has, and tells no positions: other code was started after it;"
                " if that was older code, start this one again"
            )
        return does_speak

    def root_of(self, root_path: str) -> str:
        """Where the contract lives, for an app that is mounted there."""
        return root_path.rstrip("/") if self._root is None else self._root.rstrip("/")

    def usual(self) -> Shown | None:
        """What a request is shown that says nothing to the contract, as most do not; None where more than the state at hand counts for it."""
        registry, shown = self.registry, self.shown
        if shown is None or shown.state is not registry.state or shown.readiness is not self.readiness:
            shown = self._show(registry.state)
        return None if registry.is_shared and registry.is_out_of_date else shown

    def _show(self, state: State) -> Shown | None:
        """What most requests see of a state. It is put together once, for whatever else a request looked at would not be in the processor's
        caches amid a server. None where not all is ready, or clients are not all shown the same."""
        # First, for another thread may declare a policy meanwhile: it notes that not all is ready, and changes this afterwards. So either
        # that is seen here, or what is put together here is not shown to anybody who comes later.
        readiness = self.readiness
        if self.disclosure is not None or not self.is_ready:
            return None
        face, known = face_of(state, self.level), self.policies
        # Else it has to be found for each check which operation it is for, who asks, or how what it is given was read.
        is_for_one = known.are_for_one or self.apps.is_noting_checks
        is_alike = not (is_for_one or self.readers.looks_left) and self.clients is None
        self.shown = Shown(
            state,
            face,
            face.stamp if self.level else NO_STAMP,
            self.counts,
            is_heard=known.are_any,
            is_plain=self.level > 0,
            is_of_a_shared_log=self.registry.is_shared,
            tables=self._views_of(state),
            policies=known.for_every if is_alike else None,
            readiness=readiness,
        )
        return self.shown

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
            self._has_begun = False
            self.apps.be_unheld()
            return function

        return register if function is None else register(function)

    def violations(self, request: Any, operation: str | None = None) -> list[Violation]:
        """The policies that a request violates, each with its fix. Outside of a request, say for which operation.

        Inside of one it counts as a check, for an app that answers by itself: call it when it is clear who is asking.
        """
        pin = self.pin
        given = Given(request) if pin is None else Given(request, pin.body, pin.asked_for)
        found = self._violations(given, operation, self.state, pin)
        if pin is not None:
            pin.has_checked, pin.has_violations = True, pin.has_violations or bool(found)
            self._tell(pin, Rejected(found, pin.shown.state) if found else None)
        return found

    def fixes_for(
        self, request: Mapping[str, Any], operation: str, state: State, reader: Reader = DICTIONARY
    ) -> list[Violation]:
        """What would be suggested for a request of which some fields may be unknown. A policy that needs
        those says nothing."""
        violations: list[Violation] = []
        reader = reader.for_parts(request)
        read = reader.read(request)
        if read is None:
            return violations
        given = Given(read, msgspec.json.encode(request), lambda: reader)
        for policy in self.policies.concerning(operation):
            with suppress(MalformedRequest, PolicyFailed):
                violations += evaluate([policy], given.fields, state, given.said)
        self.told_fixes.note(violations, state)
        self.counts.count_fixes(violations, "question")
        return violations

    def check(self, request: Any, operation: str | None = None) -> None:
        """Raise `Rejected` when the request violates a policy. It is answered for an app that does not handle it.

        Call it when it is clear who is asking, and before anything is done. The request is a mapping, or a pydantic
        model, dataclass or msgspec struct. Of a model, policies see what the handler goes on with, by the names on the
        wire: a field that was not sent has its default. What a fix says of the request is true of what was sent. The
        operation is that of the request at hand; give it only where the app's routes cannot be seen. The first check of
        a request also judges its precondition, and raises `PreconditionFailed`.
        """
        pin = self.pinned.get()
        if pin is None or pin.is_over:
            self._check_outside(request, operation)
            return
        pin.has_checked, shown = True, pin.shown
        if not pin.is_plain:
            pin.is_handed_on = False  # an app of another contract was only asked something on the way
        try:
            seen = at_first_sight(request, pin) if pin.is_plain or pin.precondition is None else None
            if seen is None:
                self._check_closely(Given(request, pin.body, pin.asked_for), operation, pin)
            else:  # as `_violations` does it, but nothing is made that only a refusal needs
                policies, concerned = shown.policies, None
                if policies is None or operation is not None:
                    concerned = self.apps.operation_of(operation, pin)
                    policies = self.policies.concerning(concerned)
                found = found_by(policies, seen, shown.tables or self._views_of(shown.state))
                if found or (shown.policies is None and self.readers.looks_left):
                    given = Given(request, pin.body, pin.asked_for)
                    if violations := self._told(found, given, concerned, shown.state, pin):
                        raise Rejected(violations, shown.state)
                elif shown.policies is None and self.clients is not None and self.clients.counted:
                    self.clients.note(pin.headers, concerned, seen, (), shown.state, pin)
        except (Refusal, MalformedRequest, PolicyFailed) as failure:
            self._fail(pin, failure)
            raise
        if not pin.has_passed:
            pin.has_passed = True
            shown.counts.passed += 1
        if self.on_checked:
            self._tell_of(Checked(pin, None))

    def _check_outside(self, request: Any, operation: str | None) -> None:
        """Check what is no request that an app has got."""
        if self.apps:  # else no app has the contract, as in a test of policies
            raise UsageError(
                "check does not know its request here; in a thread of a handler, run it by asyncio.to_thread,"
                " and outside of a request ask for violations(request, operation)"
            )
        state = self.registry.state
        if violations := self._violations(Given(request), operation, state, None):
            raise Rejected(violations, state)

    def judge(self, request: Any, operation: str) -> None:
        """Raise `PreconditionFailed` when the request at hand has a precondition that is not met. No policy has a say in that: it is for
        an app whose API says first what is wrong with a request."""
        pin = self.pin
        if pin is None or pin.precondition is None:
            return
        try:
            self._judge(pin.precondition, Given(request, pin.body, pin.asked_for), operation, pin)
        except PreconditionFailed as failure:
            self._fail(pin, failure)
            raise

    def _fail(self, pin: Pin, failure: Exception) -> None:
        """Note what is raised for a request, so that it can be answered."""
        pin.failures = (*pin.failures, failure)
        pin.has_violations, pin.is_plain = True, False
        self._tell(pin, failure)

    def _check_closely(self, given: Given, operation: str | None, pin: Pin) -> None:
        """Check a request that has a precondition, or that has to be looked into."""
        if pin.precondition is not None and pin.verdict is None:
            self._judge(pin.precondition, given, operation, pin)
        if violations := self._violations(given, operation, pin.shown.state, pin):
            raise Rejected(violations, pin.shown.state)

    def _tell(self, pin: Pin, failure: Exception | None = None) -> None:
        """Count a check, and tell whoever wants to know."""
        if failure is None:
            self.counts.passed += 1
        else:
            self.counts.count_failure(failure)
        self._tell_of(Checked(pin, failure))

    def _tell_of(self, checked: Checked) -> None:
        for told in self.on_checked:
            told(checked)

    def add_table(
        self, table: str, rows: Mapping[str, Row] | TableSource, version: str | None = None
    ) -> None:
        """One more table, while the app runs. Whoever shares the log sees it when it has added it too."""
        self.registry.add_table(table, rows, version)
        self._refresher.add({table: rows})
        if self._has_begun:
            self._refresher.start()

    def refresh(self, table: str, version: str | None = None, *, by: str = "") -> ReloadReport:
        """Read a table again from its source, and reload it. `by` says who does, for the log."""
        return self._refresher.refresh(table, version, by)

    def _judge(self, precondition: Precondition, given: Given, operation: str | None, pin: Pin) -> None:
        """Judge the precondition of a request; `PreconditionFailed` when it is not met."""
        _ = given.fields, self.apps.operation_of(operation, pin)  # an error in either comes first
        pin.verdict = "met" if pin.is_at_the_end and pin.shown.face.meets(precondition) else "failed"
        self.counts.count("preconditions", pin.verdict)
        if pin.verdict == "failed":  # the fixes are for the request as it was without memory
            violations: list[Violation] = []
            with suppress(MalformedRequest, PolicyFailed):
                violations = self._violations(
                    given.without(precondition.was), operation, pin.shown.state, pin
                )
            raise PreconditionFailed(violations, pin.shown.state)

    def _violations(
        self, given: Given, operation: str | None, state: State, pin: Pin | None
    ) -> list[Violation]:
        fields, concerned = given.fields, self.apps.operation_of(operation, pin)
        found = found_by(self.policies.concerning(concerned), Request(fields), self._views_of(state))
        return self._told(found, given, concerned, state, pin)

    def _views_of(self, state: State) -> Tables:
        """What policies see of a state at first."""
        views = self._views
        if views[0] is not state:
            views = self._views = (state, Tables(state))
        return views[1]

    def _told(
        self,
        found: Sequence[tuple[Policy, Fix]],
        given: Given,
        operation: str | None,
        state: State,
        pin: Pin | None,
    ) -> list[Violation]:
        """What an app is told of what was found. It is noted what that shows."""
        told = violations_of(found, given.fields, state, given.said)
        self._note(told, given, operation, state, pin)
        is_out_of_date = self.registry.is_out_of_date if pin is None else pin.is_out_of_date
        return [one.not_to_be_kept() for one in told] if is_out_of_date else told

    def _note(
        self, found: list[Violation], given: Given, operation: str | None, state: State, pin: Pin | None
    ) -> None:
        """Keep what a check shows of fixes, handlers and clients."""
        if found:
            self.told_fixes.note(found, state)
        if pin is None:
            return
        if found:
            self.counts.count_fixes(found, "stale" if pin.verdict == "failed" else "refusal")
        looks_left = self.readers.looks_left
        if found or looks_left:
            self.readers.note(pin, given)
        if looks_left and not self.readers.looks_left:
            # From now on checks may be alike. Another thread may just be putting together what requests see as long as they are not: that
            # must not be taken for news once it has.
            self._be_unready()
        if self.clients is not None and pin.verdict != "failed":
            self.clients.note(pin.headers, operation, given.fields, found, state, pin)
