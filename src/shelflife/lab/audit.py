"""The leakage audit: no prompt may hold an answer that the planner could not have got honestly."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from shelflife.lab.planners import Message, Planner, Proposal
from shelflife.lab.prompting import ANSWER, request_in
from shelflife.lab.runner import play, strategy_of
from shelflife.lab.scenarios import Episode, Scenario
from shelflife.lab.simulated import simulated_planner

__all__ = ["Leak", "leaks_in"]


class Leak(NamedTuple):
    """An answer in a prompt that had not been given yet."""

    episode: int
    attempt: int
    value: str


class _Heard(NamedTuple):
    episode: int
    messages: tuple[Message, ...]


class _Listening:
    """A planner that keeps what it is shown."""

    kind: Literal["simulated", "model"] = "simulated"

    def __init__(self, inner: Planner) -> None:
        self.name = inner.name
        self._inner = inner
        self._episode = -1
        self.heard: list[_Heard] = []

    def propose(self, messages: Sequence[Message]) -> Proposal:
        if len(messages) == 2:
            self._episode += 1
        self.heard.append(_Heard(self._episode, tuple(messages)))
        return self._inner.propose(messages)


def leaks_in(scenario: Scenario, arm: str, *, seed: int = 0) -> list[Leak]:
    """Play a stream with a planner that applies what it is shown, and look through every prompt.

    An answer is any value that a fix of the server's sets, and any value that the drift brings. In a prompt it may stand once it
    is in the task or in a reply of the server: of the same episode for an arm without memory, else of any before.
    """
    planner = _Listening(simulated_planner("compliant", seed, frozenset()) or _no_planner())
    play(scenario, arm, planner, lambda record: None, seed=seed)
    is_remembering = strategy_of(arm).is_remembering
    episodes = list(scenario.episodes(seed))
    replies = {index: _replies(heard) for index, heard in enumerate(planner.heard)}
    answers = {value for said in replies.values() for reply in said for value in _answers(reply)}
    answers |= {value for drift in scenario.drift for value in _texts([drift.rows, drift.set])}
    patterns = {value: re.compile(rf"(?<!\w){re.escape(value)}(?!\w)") for value in answers}
    leaks: list[Leak] = []
    given: list[str] = []
    for index, (episode, messages) in enumerate(planner.heard):
        allowed = "\n".join([*_of_the_task(episodes[episode]), *replies[index], *given])
        shown = "\n".join(message.content for message in messages)
        leaks += (
            Leak(episode, len(messages) // 2, value)
            for value, pattern in sorted(patterns.items())
            if pattern.search(shown) and not pattern.search(allowed)
        )
        if is_remembering:
            given += replies[index]
    return leaks


def _replies(heard: _Heard) -> list[str]:
    """What the server has said in this conversation."""
    return [message.content for message in heard.messages[2:] if message.content.startswith(ANSWER)]


def _of_the_task(episode: Episode) -> Iterator[str]:
    yield episode.task
    yield msgspec.json.encode(episode.input).decode()


def _answers(reply: str) -> Iterator[str]:
    feedback = (request_in(reply) or {}).get("recovery_feedback") or {}
    for suggestion in feedback.get("suggestions", ()):
        yield from _texts(suggestion["parameters"])


def _texts(value: Any) -> Iterator[str]:
    """The strings in a value, at any depth."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def _no_planner() -> Planner:
    raise AssertionError("the compliant planner is always there")
