"""Policies: ordinary functions of a request and the tables that return a fix, or None when all is well."""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET

from shelflife.contract import Suggestion, same_json
from shelflife.contract.cells import rows_of_cells
from shelflife.contract.messages import TableVersion
from shelflife.contract.names import check_name, shown
from shelflife.contract.values import DEEPEST_VALUE, fault_in, has_odd_number
from shelflife.errors import ShelflifeError
from shelflife.forks import Locking
from shelflife.policy_code import PolicyCode, comparisons_in
from shelflife.server.errors import MalformedRequest, PolicyFailed, UsageError
from shelflife.server.operations import Operation, Operations
from shelflife.server.reads import Reads, Request, Tables
from shelflife.server.state import State

__all__ = [
    "Fix",
    "Policies",
    "Policy",
    "PreconditionFailed",
    "Refusal",
    "Rejected",
    "Violation",
    "evaluate",
    "fault_of_request",
    "fix",
    "found_by",
    "violations_of",
]

_log = logging.getLogger("shelflife")
_PLAIN_NAME = re.compile("[A-Za-z0-9_.-]{1,60}")


class Fix(NamedTuple):
    """What a policy returns: the change that would make the request pass."""

    type: str
    """What kind of fix it is, such as `USE_REQUIRED_PROMO`."""

    parameters: Mapping[str, Any]
    """What to set in the request; None takes a field away."""


def fix(type: str, parameters: Mapping[str, Any] | None = None, /, **fields: Any) -> Fix:
    """A fix of this type that sets these request fields; None takes a field away.

    The type is a name, such as `USE_REQUIRED_PROMO`; clients ignore a fix of any other type. Fields whose names are no
    Python names go in `parameters`.
    """
    check_name(type, "suggestion")
    return Fix(type, {**(parameters or {}), **fields})


PolicyFunction = Callable[[Request, Tables], Fix | None]
Said = Callable[
    [dict[str, Any], dict[str, tuple[Any, ...]], dict[str, Any], list[str]],
    tuple[dict[str, Any], dict[str, tuple[Any, ...]]] | str,
]
"""Turns what was read of a request, as `when` and `unless`, into what its client has said, or says why it cannot. It is also given the
fix's parameters, and the objects that must be there."""


_told: WeakKeyDictionary[PolicyFunction, set[str]] = WeakKeyDictionary()
"""What the log has been told of each policy."""

_REMEDY = "put that into a table or into the request, or have the policy call tables.report_untracked"


@dataclass(frozen=True)
class Policy:
    """A policy function and what it is for."""

    function: PolicyFunction
    operation: Operation | None
    """The operation whose requests it checks; None for all."""

    id: str
    """Names it among the policies of its provider, today and after a restart."""

    version: str | None = None
    """What its author calls the code, so that it need not be looked at."""

    code: PolicyCode | None = None
    """What its code showed when it was looked at."""

    @property
    def name(self) -> str:
        return self.function.__name__

    def tell_once(self, level: int, sentence: str) -> None:
        """Tell the log something about it."""
        told = _told.setdefault(self.function, set())
        if sentence not in told:
            told.add(sentence)
            _log.log(level, "the policy %s: %s", self.name, sentence)

    @property
    def sentence(self) -> str:
        """What a person is told when it is violated: the first line of its docstring, or its name."""
        documentation = inspect.getdoc(self.function)
        sentence = documentation.splitlines()[0] if documentation else self.name.replace("_", " ")
        return sentence if sentence.endswith((".", "!", "?")) else sentence + "."

    @classmethod
    def from_function(
        cls, function: PolicyFunction, operation: str | None, version: str | None = None
    ) -> "Policy":
        if isinstance(function, str):
            raise UsageError(f"write @provider.policy(operation={function!r})")
        name = getattr(function, "__name__", repr(function))
        if not inspect.isroutine(function) or inspect.iscoroutinefunction(function):
            raise UsageError(f"{name} cannot be a policy; policies are ordinary functions, and not async")
        try:
            bound = inspect.signature(function).bind(None, None)
        except TypeError:
            raise UsageError(
                f"{name} cannot be a policy; a policy takes the request and the tables"
            ) from None
        first, *others = bound.arguments
        if first == "tables" or others == ["request"]:
            raise UsageError(f"{name} has its parameters in the wrong order; write {name}(request, tables)")
        id = f"{getattr(function, '__qualname__', name)} {operation or ''}".strip()
        return cls(function, None if operation is None else Operation.from_name(operation), id, version)


class Policies(Locking):
    """The policies of a provider."""

    def __init__(self, *, are_strict: bool = False) -> None:
        super().__init__()
        self._are_strict = are_strict
        self._all: list[Policy] = []
        """Another list after every change. It and what follows change under the lock, and code is looked at without it."""
        self.operations = Operations()
        """The operations that some policy is for."""
        self.are_any = self.are_for_one = False
        """Whether there is any, and whether one is for one operation alone."""
        self._fingerprints: dict[str, str] | None = None
        self.for_every: list[Policy] | None = None
        """Those that are for every operation; None until somebody has looked at them."""
        self._by_operation: dict[str, list[Policy]] = {}
        """Those for an operation that some policy is for, and for every one."""

    def add(self, policy: Policy) -> None:
        """One more; the order in which they are declared is that of the suggestions."""
        self.are_any = True
        with self._lock:
            same_count = sum(one.id.partition("#")[0] == policy.id for one in self._all)
            added = replace(policy, id=f"{policy.id}#{same_count}") if same_count else policy
            self._all = [*self._all, added]
            self.operations = Operations(one.operation for one in self._all if one.operation is not None)
            self.are_for_one = bool(self.operations)
            self._fingerprints = self.for_every = None

    def look(self) -> dict[str, str]:
        """Look at their code, if nobody has since one was added. Gives what names the code of each, by what it is called.

        It is looked at when all of it is there, because a policy may call what is defined after it; and before any of
        it runs, so that what a policy keeps is noticed.
        """
        while (fingerprints := self._fingerprints) is None:
            self._look_at(self._all)
        return fingerprints

    def _look_at(self, declared: list[Policy]) -> None:
        seen = [self._looked_at(one) for one in declared]
        by_operation = {
            name: [one for one in seen if one.operation is None or one.operation.name == name]
            for name in {one.operation.name for one in seen if one.operation is not None}
        }
        fingerprints = {
            one.id: f"version {one.version}" if one.code is None else one.code.fingerprint for one in seen
        }
        with self._lock:
            # Another thread may have added one since: then this holds no longer, and to keep it would leave that one out of every check.
            # Or it has looked at the same, and requests see that already.
            if self._all is declared:
                self._all, self._by_operation, self._fingerprints = seen, by_operation, fingerprints
                self.for_every = [one for one in seen if one.operation is None]

    def all(self) -> list[Policy]:
        """All of them, in the order in which they are declared."""
        return [*self._all]

    def concerning(self, operation: str | None) -> list[Policy]:
        """Those for every operation and for this one."""
        while (for_every := self.for_every) is None:
            self.look()
        return for_every if operation is None else self._by_operation.get(operation, for_every)

    def _looked_at(self, policy: Policy) -> Policy:
        """A policy with what its code shows. The log is told what it reads that is not tracked, or without need."""
        if policy.version is not None or policy.code is not None:
            return policy
        code = PolicyCode(policy.function)
        for read in code.untracked:
            sentence = f"{read}, and no version tells when that changes: {_REMEDY}"
            if self._are_strict:
                raise UsageError(f"the policy {policy.name}: {sentence}")
            policy.tell_once(logging.WARNING, sentence)
        if _log.isEnabledFor(logging.INFO):  # the source is read only where somebody would see it
            for hint in comparisons_in(policy.function):
                policy.tell_once(logging.INFO, hint)
        return replace(policy, code=code)


class Violation(NamedTuple):
    """A violated policy and its fix."""

    policy: Policy
    """The policy, with its `name` and its `sentence` for people."""

    suggestion: Suggestion
    """The fix, with all that it rests on."""

    def not_to_be_kept(self) -> "Violation":
        """The same fix for this request alone: nobody vouches for what it rests on."""
        told = self.suggestion
        return Violation(
            self.policy, Suggestion(type=told.type, parameters=told.parameters, cache_hint="recompute")
        )


class Refusal(ShelflifeError):
    """A request is refused, with the fixes that would make it pass. It is answered for an app that does not
    handle it."""

    def __init__(self, violations: Iterable[Violation], state: State) -> None:
        self.violations = tuple(violations)
        self.state = state
        super().__init__(" ".join(self.sentences))

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """The typed fixes, with everything known about them."""
        return tuple(violation.suggestion for violation in self.violations)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person is told, one sentence a violated policy."""
        return tuple(violation.policy.sentence for violation in self.violations)


class Rejected(Refusal):
    """The request violates policies. `suggestions` has the fixes, `sentences` what a person is told, `violations` both with their policies."""


class PreconditionFailed(Refusal):
    """What the request's remembered values rest on has moved. It is no `Rejected`: a handler for that expects
    violations."""


def evaluate(
    policies: Iterable[Policy], fields: Mapping[str, Any], state: State, said: Said | None = None
) -> list[Violation]:
    """Run the policies against a request on one state: `found_by`, then `violations_of`."""
    return violations_of(found_by(policies, Request(fields), Tables(state)), fields, state, said)


def found_by(policies: Iterable[Policy], request: Request, tables: Tables) -> Sequence[tuple[Policy, Fix]]:
    """What policies say to a request at first, of those that have something to say. It and the tables are without a record.

    Raises `PolicyFailed` when one of them has a bug, and `MalformedRequest` when one refuses or fails for a request that
    holds what JSON cannot carry. A good request is not searched for that.
    """
    found: tuple[tuple[Policy, Fix], ...] = ()
    for policy in policies:
        try:
            said = policy.function(request, tables)
        except MalformedRequest:
            raise
        except Exception as error:
            _check_carried(request._fields)
            raise PolicyFailed(policy.name, error) from error
        if said is not None:
            _check_carried(request._fields)
            found = (*found, (policy, said))
    return found


def violations_of(
    found: Iterable[tuple[Policy, Fix]], fields: Mapping[str, Any], state: State, said: Said | None = None
) -> list[Violation]:
    """What was found, with all that it rests on: each policy runs once more, under a record of its reads.

    `said` turns what it has read of the fields into what a client has said, where that may be something else.
    """
    violations = []
    for policy, fix in found:
        try:
            violations.append(Violation(policy, _suggestion(policy, fix, fields, state, said)))
        except MalformedRequest:
            raise
        except Exception as error:
            raise PolicyFailed(policy.name, error) from error
    return violations


def fault_of_request(fields: Mapping[str, Any]) -> str | None:
    """Why no suggestion could say that it holds for this request, in one sentence; None when one could."""
    fault = fault_in(fields, DEEPEST_VALUE)
    if fault is None:
        return None
    if not fault.path:
        return f"the request {fault.what}"
    field = fault.path[0]
    return f"the field {field if _PLAIN_NAME.fullmatch(field) else shown(field)} {fault.what}"


def _check_carried(fields: Mapping[str, Any]) -> None:
    why = fault_of_request(fields)
    if why is not None:
        raise MalformedRequest(why) from None


def _suggestion(
    policy: Policy, found: Fix, fields: Mapping[str, Any], state: State, said: Said | None
) -> Suggestion:
    """The suggestion of a fix that was found, with what the policy reads when it runs again, under a record.

    If it says something else then, it reads what is not on record. Its first word counts, and is not to be kept.
    """
    parameters = _parameters(found)
    reads = Reads()
    try:
        again = policy.function(Request(fields, reads), Tables(state, reads))
        is_steady = (
            again is not None and again.type == found.type and same_json(_parameters(again), parameters)
        )
    except Exception:  # noqa: BLE001 - to fail now is to say something else
        is_steady = False
    if reads.untracked is None:
        _judge_steadiness(policy, reads, is_steady)
    is_tracked = reads.untracked is None and bool(reads.tables)
    told: tuple[dict[str, Any], dict[str, tuple[Any, ...]]] | str = reads.conditions(fields)
    if said and is_tracked:
        told = said(reads.when, reads.unless, parameters, reads.objects)
    if isinstance(told, str):
        policy.tell_once(logging.WARNING, f"{told}, so such a fix of it is never kept")
    if isinstance(told, str) or not is_tracked:
        return Suggestion(type=found.type, parameters=parameters, cache_hint="recompute")
    cells, (when, unless) = reads.cells, told
    if has_odd_number(unless):
        raise ValueError("a field is compared with a number that JSON cannot carry")
    suggestion = Suggestion(
        type=found.type,
        parameters=parameters,
        cache_hint="cacheable",
        table=next(reversed(reads.tables)),
        tables=tuple(
            TableVersion(table=table, version=state.tables[table].version) for table in reads.tables
        ),
        rows=rows_of_cells(cells),
        cells=cells,
        rules=tuple(reads.rules) or UNSET,
        when=when,
        unless=unless or UNSET,
    )
    msgspec.json.encode(suggestion)  # what cannot go on the wire fails here, and not in the answer
    return suggestion


def _parameters(result: Fix) -> dict[str, Any]:
    """The parameters of a fix as they go on the wire."""
    if not isinstance(result, Fix):
        raise TypeError(f"a policy returns a fix or None, not {type(result).__name__}")
    tree = msgspec.to_builtins(dict(result.parameters), str_keys=True, enc_hook=_object_of)
    if has_odd_number(tree):
        raise ValueError("a fix holds a number that JSON cannot carry")
    return msgspec.json.decode(msgspec.json.encode(tree), type=dict[str, Any])


def _judge_steadiness(policy: Policy, reads: Reads, is_steady: bool) -> None:
    """Note that a policy reads more than is on record, if it does, and warn of it once: no memory can use its fixes."""
    if not is_steady:
        reads.untracked = "it says something else when it runs again for the same request"
    elif policy.code is not None and (changed := policy.code.changed()) is not None:
        reads.untracked = f"{changed} is not what it was when the policy was declared"
    if reads.untracked is not None:
        policy.tell_once(
            logging.WARNING,
            f"{reads.untracked}, so its fixes are never kept: it reads something that is neither in the request nor"
            f" in the tables; {_REMEDY}",
        )
    elif policy.code is not None and policy.code.untracked:
        reads.untracked = policy.code.untracked[0]  # which was told when the app has started


def _object_of(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a fix holds JSON values, not {type(value).__name__}")
