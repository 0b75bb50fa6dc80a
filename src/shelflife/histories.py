"""When things were seen to change. It knows nothing of contracts, and reads no clock. What that says of the next change is in `habits`."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import msgspec

__all__ = ["LEAST_SEEN", "MOST_SEEN", "Histories", "Seen", "changed_names"]

LEAST_SEEN = 3
"""Of what was seen to change less often nothing is said: whatever gaps follow, they have not shown yet."""

MOST_SEEN = 48
"""Of each thing so many changes are kept, the last ones: some bursts of them, where changes come in bursts."""

_MOST_SEEN_OF_ALL = 1_000
_MOST_PARTS = 64
"""A thing of which more parts have changed at once was made anew: that says nothing of single parts."""


class Seen(NamedTuple):
    """A change that took place between two looks."""

    after: float
    by: float


class Histories(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """When each of several things was seen to change, by looks that are at all of them at once. A part of a thing is named `thing:part`."""

    since: float
    """The first look."""

    seen: dict[str, tuple[Seen, ...]] = {}
    """Of what has changed, by name; the one that changed last comes last."""

    @property
    def looked_at(self) -> float:
        """The last look that is on record: the first, or one by which something was seen to have changed."""
        return next(reversed(self.seen.values()))[-1].by if self.seen else self.since

    def after(self, changed: Iterable[str], looked_at: float, now: float) -> Self:
        """With what has changed between the last look and this one. Of each the last changes are kept, and of all those that changed last.

        What was seen later than now was seen by a clock that has been set back since: it is left out.
        """
        if now < self.looked_at:
            return self._until(now).after(changed, min(looked_at, now), now)
        seen = dict(self.seen)
        for name in changed:
            seen[name] = (*seen.pop(name, ()), Seen(max(self.since, looked_at), now))[-MOST_SEEN:]
        excess = sum(map(len, seen.values())) - _MOST_SEEN_OF_ALL
        while excess > 0:
            excess -= len(seen.pop(next(iter(seen))))
        return type(self)(self.since, seen)

    def _until(self, now: float) -> Self:
        """What was seen by then."""
        kept = {name: tuple(one for one in changes if one.by <= now) for name, changes in self.seen.items()}
        by_last = sorted(((name, changes) for name, changes in kept.items() if changes), key=_last_by)
        return type(self)(min(self.since, now), dict(by_last))


def changed_names(thing: str, parts: Iterable[str]) -> list[str]:
    """The names under which it is kept that a thing has changed, with some of its parts."""
    named = [f"{thing}:{part}" for part in parts]
    return [thing, *(named if len(named) <= _MOST_PARTS else ())]


def _last_by(item: tuple[str, tuple[Seen, ...]]) -> float:
    return item[1][-1].by
