"""Whether remembered fixes are still true: what the server would say now to the very requests whose refusals taught them."""

from collections.abc import Mapping
from typing import Any

from shelflife.client.entries import Entry
from shelflife.contract.values import same_json
from shelflife.contract.when import WHOLE_REQUEST
from shelflife.server import Provider

__all__ = ["Learned"]


class Learned:
    """What the agents of a run have learned so far."""

    def __init__(self, operation: str, wants: Mapping[str, Any]) -> None:
        """`wants` is what a server that injects slips into its fixes: these are no less true for it."""
        self._operation = operation
        self._wants = wants
        self._entries: dict[str, Entry] = {}
        self._episodes: dict[str, int] = {}
        self._requests: dict[str, dict[str, Any]] = {}
        """By the place of entries, the request that was refused first. Whatever takes their place later is for the same."""

    def note(self, entry: Entry, request: Mapping[str, Any], episode: int) -> None:
        """An entry was stored in an episode, when this request was the last that was sent."""
        when = entry.condition.when
        read: Mapping[str, Any] = when.get(WHOLE_REQUEST, when)
        self._requests.setdefault(entry.place, {**request, **read})
        self._entries[entry.id] = entry
        self._episodes[entry.id] = episode

    def episode_of(self, entry: Entry) -> int:
        """When an entry was learned; -1 where that is not known."""
        return self._episodes.get(entry.id, -1)

    def vectors_now(self, provider: Provider) -> dict[str, list[str] | None]:
        """For each entry, the tables that the server would name with the same fix now; None where it would not give that fix."""
        provider.registry.catch_up()
        return {id: self._vector(entry, provider) for id, entry in [*self._entries.items()]}

    def _vector(self, entry: Entry, provider: Provider) -> list[str] | None:
        request = self._requests[entry.place]
        for violation in provider.fixes_for(request, self._operation, provider.registry.state):
            given = violation.suggestion
            if given.type == entry.type and same_json(
                {**given.parameters, **self._wants}, {**entry.parameters, **self._wants}
            ):
                return sorted(given.depends_on)
        return None
