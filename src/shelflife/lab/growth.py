"""How the numbers of a run grow with drift: what came of the episodes between one moment of drift and the next."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from shelflife.lab.records import Asked, Attempted, EpisodeEnded, Evicted

__all__ = ["SinceDrift", "since_each"]


class SinceDrift(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the episodes from one moment of drift to the next."""

    after: int
    """The episode before it."""

    episodes: int
    retries: int
    stale_injections: int
    stale_executions: int
    evictions: int
    tokens: int
    bytes: int
    """Of the bodies of requests and responses, of the contract's headers, and of the memory's questions."""


def since_each(
    moments: Sequence[int],
    ended: Mapping[int, EpisodeEnded],
    attempts: Sequence[Attempted],
    asked: Sequence[Asked],
    evictions: Sequence[Evicted],
    injected: Sequence[int],
    executed: Sequence[int],
) -> Iterator[SinceDrift]:
    """For each moment of drift, from then to the next. Of what was stale there are the episodes, one for each time."""
    after_all = max(ended, default=0) + 1  # what is heard of after the last episode is of the last drift too
    for moment, next_moment in pairwise([*moments, after_all]):
        these = range(moment + 1, next_moment + 1)
        tried = [one for one in attempts if one.episode in these]
        yield SinceDrift(
            after=moment,
            episodes=sum(index in these for index in ended),
            retries=sum(one.attempts - 1 for index, one in ended.items() if index in these),
            stale_injections=sum(index in these for index in injected),
            stale_executions=sum(index in these for index in executed),
            evictions=sum(one.episode in these for one in evictions),
            tokens=sum(one.prompt_tokens + one.completion_tokens for one in tried),
            bytes=sum(one.request_bytes + one.contract_request_bytes + one.response_bytes for one in tried)
            + sum(one.question_bytes for one in asked if one.episode in these),
        )
