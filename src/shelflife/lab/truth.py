"""Whether remembered fixes are still true: what the server would say now to the very requests whose refusals taught them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shelflife.client.entries import Entry
from shelflife.lab.records import Drifted, Given, Judged
from shelflife.server import Provider

__all__ = ["Learned"]

_MOST_OTHER_ROWS = 32


class Learned:
    """What the agents of a run have learned so far."""

    def __init__(self, operation: str, wants: Mapping[str, Any], provider: Provider) -> None:
        """`wants` is what a server that injects slips into its fixes: these are no less true for it."""
        self._operation = operation
        self._wants = wants
        self._provider = provider
        self._entries: dict[str, Entry] = {}
        self._episodes: dict[str, int] = {}
        self._grown: dict[tuple[int, str], list[str]] = {}
        """By episode and table: the ids of the entries that have come to depend on it, until that is told."""
        self._requests: dict[str, dict[str, Any]] = {}
        """By the id of entries, the request whose refusal taught them, or that the memory had asked about."""
        self._told: dict[str, bytes] = {}
        """By the id of entries, the JSON of what was told of them last since they were learned."""

    def note(self, entry: Entry, request: Mapping[str, Any], episode: int) -> None:
        """An entry was stored in an episode: the server gave its fix to this request."""
        self._requests[entry.id] = dict(request)
        self._entries[entry.id] = entry
        self._episodes[entry.id] = episode
        self._told.pop(entry.id, None)

    def episode_of(self, entry: Entry) -> int:
        """When an entry was learned; -1 where that is not known."""
        return self._episodes.get(entry.id, -1)

    def kept(self, dependent: Iterable[Entry], table: str, episode: int) -> list[str]:
        """The ids of the entries that a memory has kept in an episode, of all that depend on this table since.

        The table has moved, or some of the entries have come to depend on it: then it is only these. Where both is so, it is told twice.
        """
        older = [one for one in dependent if one.id in self._entries and self.episode_of(one) < episode]
        for entry in older:
            for new in {*entry.grounds.tables}.difference(self._entries[entry.id].grounds.tables):
                self._grown.setdefault((episode, new), []).append(entry.id)
            self._entries[entry.id] = entry
        return self._grown.pop((episode, table), None) or [entry.id for entry in older]

    def judged(self) -> dict[str, Judged]:
        """For entries, by their id, all that the server would give now in their place.

        Once for each that was learned since the last time, and then where it is other than what was told of it last.
        """
        by_request: dict[bytes, list[Given]] = {}
        judged = {}
        for id, request in [*self._requests.items()]:
            asked = msgspec.json.encode(request)
            if asked not in by_request:
                by_request[asked] = self._given(request)
            told = msgspec.json.encode(by_request[asked])
            if self._told.get(id) != told:
                self._told[id] = told
                judged[id] = Judged(request, by_request[asked])
        return judged

    def without_most_of(self, drifted: Drifted) -> Drifted:
        """A drift without the rows that concern nobody, but for a few: a release of real data may have thousands."""
        rest_on = {row for entry in self._entries.values() for row in entry.grounds.rows or ()}
        concerned = [row for row in drifted.rows if row in rest_on]
        others = [row for row in drifted.rows if row not in rest_on]
        told = {*concerned, *others[:_MOST_OTHER_ROWS]}
        return msgspec.structs.replace(
            drifted,
            rows=[row for row in drifted.rows if row in told],
            more_rows=len(drifted.rows) - len(told),
        )

    def fitting(self, entries: Sequence[Entry], request: Mapping[str, Any]) -> list[str]:
        """The ids of the entries that the server would give to this request now."""
        given = self._given(request) if entries else []
        return [entry.id for entry in entries if any(one.is_same(entry) for one in given)]

    def _given(self, request: Mapping[str, Any]) -> list[Given]:
        provider = self._provider
        provider.registry.catch_up()
        violations = provider.fixes_for(request, self._operation, provider.registry.state)
        return [
            Given(
                one.suggestion.type,
                {**one.suggestion.parameters, **self._wants},
                sorted(one.suggestion.depends_on),
            )
            for one in violations
        ]
