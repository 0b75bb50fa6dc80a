"""The leakage audit: no prompt may hold an answer that the planner could not have got honestly."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from shelflife.lab.apis import APIS
from shelflife.lab.planners import Message, Planner, Proposal
from shelflife.lab.planners.simulated import SimulatedPlanner
from shelflife.lab.prompting import request_in
from shelflife.lab.runner import is_remembering, play
from shelflife.lab.scenarios import Episode, Family, Scenario
from shelflife.lab.spec import Consume, RunSpec
from shelflife.lab.wordings import wording_of_system

__all__ = ["Leak", "leaks_in"]

_TRUTH = ("true", "false")


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

    An answer is any value that a fix of the server's sets, and any value that the drift brings and the schema does not name. In a prompt it may stand once it
    is in the task or in a reply of the server: of the same episode for an arm without memory, else of any before. In the
    task itself, whichever of the varied values it is given, what the fix for that very task sets may not stand at all.
    """
    has_memory = is_remembering(arm)
    ways = (Consume.LEVEL_2, Consume.LEVEL_3) if has_memory else (Consume.LEVEL_3,)
    leaks: list[Leak] = []
    for consume in ways:
        planner = _Listening(SimulatedPlanner("compliant"))
        spec = RunSpec(scenario.name, arm, planner.name, seed, consume)
        play(spec, planner, lambda record: None, scenario=scenario)
        leaks += _in_tasks(scenario, planner.heard)
        leaks += _in_prompts(scenario, planner.heard, seed, is_remembering=has_memory)
    return sorted(dict.fromkeys(leaks))


def _in_tasks(scenario: Scenario, all_heard: Sequence[_Heard]) -> Iterator[Leak]:
    """What a stream gives away by its own words."""
    for heard in all_heard:
        family = scenario.families[scenario.order[heard.episode]]
        written = "\n".join(_of_the_family(family, scenario.varied))
        answers = {value for reply in _replies(heard) for value in _answers(reply, family.field)}
        if family.hint:
            yield from (Leak(heard.episode, 1, value) for value in _found(written, answers))


def _in_prompts(
    scenario: Scenario, all_heard: Sequence[_Heard], seed: int, *, is_remembering: bool
) -> Iterator[Leak]:
    """What the lab gives away by what it puts around the tasks."""
    episodes = list(scenario.episodes(seed))
    replies = [_replies(heard) for heard in all_heard]
    answers = {value for said in replies for reply in said for value in _answers(reply)}
    brought = {value for drift in scenario.drift for value in _scalars([drift.rows, drift.set])}
    # a word of the request's schema, such as a diet, is no answer before a fix sets it
    answers |= brought.difference(_found(APIS[scenario.api].fields, brought))
    given: set[str] = set()
    for (episode, messages), said in zip(all_heard, replies, strict=True):
        told = set(_found("\n".join([*_of_the_task(episodes[episode]), *said]), answers))
        shown = "\n".join(message.content for message in messages)
        yield from (
            Leak(episode, len(messages) // 2, value)
            for value in _found(shown, answers)
            if value not in told and value not in given
        )
        if is_remembering:
            given.update(_found("\n".join(said), answers))


def _found(text: str, values: Iterable[str]) -> Iterator[str]:
    """The values that stand in a text. Nearly all do not, and to look for a mere text is quick."""
    lowered = text.lower()
    return (
        value
        for value in values
        if value in (lowered if value in _TRUTH else text) and _finder(value).search(text)
    )


def _replies(heard: _Heard) -> list[str]:
    """What the server has said in this conversation."""
    system, _, *since = (message.content for message in heard.messages)
    opening = wording_of_system(system).answered.partition("{")[0]
    return [said for said in since if said.startswith(opening)]


def _of_the_task(episode: Episode) -> Iterator[str]:
    yield episode.task
    yield msgspec.json.encode(episode.input).decode()


def _of_the_family(family: Family, varied: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """All that its tasks may say; a truth value in the input says nothing by itself."""
    yield family.task
    for field, value in family.input.items():
        values = varied.get(field, [value])
        yield from (text for text in _scalars(values) if text not in _TRUTH)


def _answers(reply: str, field: str | None = None) -> Iterator[str]:
    """The values that the fixes in a reply set: all of them, or those of a field."""
    feedback = (request_in(reply) or {}).get("recovery_feedback") or {}
    for suggestion in feedback.get("suggestions", ()):
        parameters = suggestion["parameters"]
        yield from _scalars(parameters if field is None else parameters.get(field))


def _scalars(value: Any) -> Iterator[str]:
    """The texts, numbers and truth values in a value, at any depth, as a prompt has them."""
    match value:
        case str():
            yield value
        case bool() | int() | float():
            yield msgspec.json.encode(value).decode()
        case dict():
            for inner in value.values():
                yield from _scalars(inner)
        case list():
            for inner in value:
                yield from _scalars(inner)


def _finder(value: str) -> re.Pattern[str]:
    """Finds a value as a word of its own, and a truth value however it is capitalised."""
    flags = re.IGNORECASE if value in _TRUTH else re.NOFLAG
    return re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", flags)
