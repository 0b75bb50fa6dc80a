"""What a remembered fix may do to an outgoing request. Fixes are untrusted input."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from shelflife.client.entries import Entry
from shelflife.client.events import Applied, Event, Refused
from shelflife.contract import same_json

__all__ = ["Amended", "Guard", "amend", "merged"]

_CREDENTIAL = re.compile(
    r"(?i)(^|[_.-])(authori[sz]ation|password|passwd|secret|api[_-]?key|access[_-]?token|refresh[_-]?token"
    r"|auth[_-]?token|bearer|cookie|session[_-]?id|private[_-]?key)s?($|[_.-])"
)
_ADDRESS = re.compile(
    r"(?i)^(url|uri|host|hostname|origin|base[_-]?url|endpoint|callback[_-]?url|webhook[_-]?url)$"
)
_LARGEST_PARAMETERS = 16_384


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """Which fixes may be applied. By default: those that name no credential and no address."""

    operations: frozenset[str] | None = None
    """The operations whose requests may be amended; None for all."""

    fields: Mapping[str, frozenset[str]] | None = None
    """For each operation the fields that may be set; an operation that is not here allows none. None for any field."""

    def refusal(self, entry: Entry) -> str | None:
        """Why an entry may not be applied; None when it may."""
        if self.operations is not None and entry.operation not in self.operations:
            return f"{entry.operation} is not among the operations that may be amended"
        for name in entry.parameters:
            if _CREDENTIAL.search(name):
                return f"{name!a} looks like a credential"
            if _ADDRESS.match(name):
                return f"{name!a} looks like an address"
            if self.fields is not None and name not in self.fields.get(entry.operation, ()):
                return f"{name!a} is not among the fields that may be set"
        if len(msgspec.json.encode(entry.parameters)) > _LARGEST_PARAMETERS:
            return "its parameters are too large"
        return None


class Amended(msgspec.Struct, frozen=True):
    """A request with remembered fixes in it."""

    request: dict[str, Any]
    applied: list[Applied]
    refused: list[Refused]

    @property
    def events(self) -> list[Event]:
        """What happened, in order."""
        return [*self.refused, *self.applied]


def amend(
    request: Mapping[str, Any], recall: Callable[[Mapping[str, Any]], Sequence[Entry]], guard: Guard
) -> Amended:
    """Apply what is remembered for a request, then what is remembered for the outcome, each fix once.

    Where two remembered fixes set a field to different values neither is applied.
    """
    amended = dict(request)
    applied: list[Applied] = []
    refused: dict[str, Refused] = {}
    while True:
        fresh = [
            entry
            for entry in recall(amended)
            if entry.id not in refused and not any(entry.id == done.entry.id for done in applied)
        ]
        if not fresh:
            return Amended(amended, applied, list(refused.values()))
        for entry in fresh:
            why = guard.refusal(entry) or _contradiction(entry, fresh, applied)
            if why is not None:
                refused[entry.id] = Refused(entry, why)
            elif entry.applies_to(amended):
                amended = merged(amended, entry.parameters)
                applied.append(Applied(entry, entry.parameters))


def _contradiction(entry: Entry, fresh: Sequence[Entry], applied: Sequence[Applied]) -> str | None:
    rivals = [*(other for other in fresh if other is not entry), *(done.entry for done in applied)]
    for other in rivals:
        for name in entry.parameters.keys() & other.parameters.keys():
            if not same_json(entry.parameters[name], other.parameters[name]):
                return f"another remembered fix sets {name!a} to something else"
    return None


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A request with a fix merged into it, as RFC 7396 says."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[name] = value
    return result
