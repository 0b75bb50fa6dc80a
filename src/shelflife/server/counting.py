"""Counting what a provider does. Each process counts for itself, and now and then adds what is new to what the log keeps for all of them.

So the counts of workers that have ended stay, and nobody who asks one worker after the other sees a count go back.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Literal

import msgspec

from shelflife.forks import Forked, mind_forks
from shelflife.server.errors import LogError, MalformedRequest
from shelflife.server.log import Change, Log
from shelflife.server.policies import PreconditionFailed, Refusal, Violation

__all__ = ["Counts", "GivenWith", "Key", "Result", "result_of"]

_log = logging.getLogger("shelflife")

_KEPT_EVERY_S = 2.0
_MOST_TYPES = 64
"""So many types of fixes are counted for each policy by their names. A policy may make them up from what it is asked."""
_OTHER = "other"

Key = tuple[str, ...]
"""What is counted, and the values that tell one count of it from another."""

Result = Literal["passed", "refused", "stale", "malformed", "failed"]
"""What has come of a check."""

GivenWith = Literal["refusal", "stale", "question"]
"""How a fix was given: with a refusal, with the answer to a failed precondition, or because it was asked for."""

_key_of = msgspec.json.Decoder(Key).decode


class Counts(Forked):
    """What one process has counted since it began."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.after_fork_in_child()
        mind_forks(self)

    def after_fork_in_child(self) -> None:
        """Begin with nothing: what the parent has counted is the parent's."""
        self._lock, self._keeping = threading.Lock(), threading.Lock()
        # What nearly every request or listener is counted in has no lock. In builds of Python with a global lock no other thread comes
        # between the reading and the writing of a plain attribute; in others a few may be lost.
        self.passed = self.stamped = self.fed = 0
        self._counts: dict[Key, int] = {}
        self._types: dict[str, set[str]] = {}
        self._kept: dict[Key, int] = {}
        """What of it the log has."""
        self._kept_at = 0.0
        self._named: dict[str, set[str]] = {}
        """The types of fixes that the log counts by their names, by policy, as far as this process knows."""

    def count(self, *key: str, by: int = 1) -> None:
        """Something has happened."""
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + by

    def count_failure(self, failure: Exception) -> None:
        """A check has raised this."""
        self.count("checks", result_of(failure))

    def count_fixes(self, found: Iterable[Violation], given: GivenWith) -> None:
        """These fixes were given."""
        for policy, suggestion in found:
            types = self._types.setdefault(policy.id, set())
            if len(types) < _MOST_TYPES:
                types.add(suggestion.type)
            type = suggestion.type if suggestion.type in types else _OTHER
            self.count("fixes", policy.id, type, given)

    def count_change(self, change: Change) -> None:
        """A change was appended to the log."""
        parts = {"tables": change.tables, "rules": change.rules, "policies": change.policies}
        for what in (name for name, part in parts.items() if part):
            self.count("changes", what)
        for table, one in change.tables.items():
            diff = one.delta.diff
            for how, keys in (("added", diff.added), ("removed", diff.removed), ("changed", diff.changed)):
                if keys:
                    self.count("changed_rows", table, how, by=len(keys))

    def own(self) -> dict[Key, int]:
        """What this process has counted."""
        with self._lock:
            own = {("checks", "passed"): self.passed, ("stamped_responses",): self.stamped}
            return {**self._counts, **own, ("feed_events",): self.fed}

    def keep(self, *, now: bool = False) -> None:
        """Have the log keep what was counted, if it is time for that."""
        if not now and time.monotonic() - self._kept_at < _KEPT_EVERY_S:
            return
        self._kept_at = time.monotonic()
        try:
            self._keep()
        except LogError as error:
            _log.info("what was counted is not kept yet: %s", error)

    def totals(self) -> dict[Key, int]:
        """What all workers have counted, as far as the log keeps it; all that this one has is among it.

        It is `LogError` when the log cannot be reached: what is known of others would be older than what another worker may have told.
        """
        self._keep()
        return {_key_of(key): count for key, count in self._log.counted().items()}

    def _keep(self) -> None:
        with self._keeping:  # else two threads would add the same
            own, kept = self.own(), self._kept
            news = {key: more for key, count in own.items() if (more := count - kept.get(key, 0))}
            if any(key[0] == "fixes" and key[2] not in self._named.get(key[1], ()) for key in news):
                self._learn_names()
            added: dict[str, int] = {}
            for key, more in news.items():
                name = msgspec.json.encode(self._bounded(key)).decode()
                added[name] = added.get(name, 0) + more
            if added:
                self._log.count(added)
            self._kept = own

    def _learn_names(self) -> None:
        for what, *labels in map(_key_of, self._log.counted()):
            if what == "fixes":
                self._named.setdefault(labels[0], set()).add(labels[1])

    def _bounded(self, key: Key) -> Key:
        """What the log counts something as. It keeps counts for good, so the bound on types is over all processes there ever were.

        Two of them may find room at the same moment: then there are a few more, once.
        """
        if key[0] != "fixes":
            return key
        what, policy, type, given = key
        named = self._named.setdefault(policy, set())
        if type not in named and len(named - {_OTHER}) >= _MOST_TYPES:
            return what, policy, _OTHER, given
        named.add(type)
        return key


def result_of(failure: Exception) -> Result:
    """What it means that a check has raised this."""
    if isinstance(failure, Refusal):
        return "stale" if isinstance(failure, PreconditionFailed) else "refused"
    return "malformed" if isinstance(failure, MalformedRequest) else "failed"
