"""Planners that stand in for a model. They read the same messages, and nothing else."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Literal, NamedTuple

import msgspec

from shelflife.contract.merging import merged
from shelflife.lab.planners import Message, PlannerError, Proposal, Usage
from shelflife.lab.prompting import request_in
from shelflife.lab.wordings import Wording, wording_of_system

__all__ = [
    "DETERMINISTIC",
    "PRESETS",
    "Answer",
    "Rates",
    "SeededPlanner",
    "SimulatedPlanner",
    "estimated_tokens",
    "simulated_planner",
    "stand_in_for",
]

_AMENDMENT = re.compile(r"- (?P<name>[\w.\-]+): ")
_OR = " | "
_ENCODING = "o200k_base"


class Amendment(NamedTuple):
    """What the memory would change of the input: a field, and its values, oldest first."""

    field: str
    values: tuple[Any, ...]
    is_added: bool


class Answer(NamedTuple):
    """What a model may find by itself."""

    given: Mapping[str, Any]
    """What the input of a task has."""

    sets: Mapping[str, Any]
    """What the server would ask for."""


class _Text(NamedTuple):
    """What can be read in the messages."""

    task_input: dict[str, Any]
    amendments: list[Amendment]
    last_request: dict[str, Any] | None
    suggestions: list[dict[str, Any]]
    """The parameters of the fixes in the server's last answer."""


class SimulatedPlanner:
    """Applies what it is shown; subclasses decline some of it. Its tokens are estimated."""

    kind: Literal["simulated", "model"] = "simulated"

    def __init__(
        self, name: str, *, takes_last: bool = False, adds: bool = True, rewrites: bool = True
    ) -> None:
        self.name = name
        self._takes_last = takes_last
        self._adds = adds
        self._rewrites = rewrites

    def propose(self, messages: Sequence[Message]) -> Proposal:
        request = self._request(_read(messages))
        text = msgspec.json.encode(request).decode()
        prompt = sum(estimated_tokens(message.content) + 4 for message in messages)
        return Proposal(text, Usage(prompt, estimated_tokens(text), "estimated"))

    def _request(self, text: _Text) -> dict[str, Any]:
        if text.last_request is not None:
            request = text.last_request
            for parameters in text.suggestions:
                if self._follows(is_adding=not text.task_input.keys() >= parameters.keys()):
                    request = merged(request, parameters)
            return request
        request = merged(text.task_input, self._guessed(text))
        for amendment in text.amendments:
            if self._accepts(amendment):
                value = amendment.values[-1 if self._prefers_last(amendment) else 0]
                request = merged(request, {amendment.field: value})
        return request

    def _accepts(self, amendment: Amendment) -> bool:
        return self._adds if amendment.is_added else self._rewrites

    def _prefers_last(self, amendment: Amendment) -> bool:
        return self._takes_last

    def _follows(self, *, is_adding: bool) -> bool:
        return True

    def _guessed(self, text: _Text) -> Mapping[str, Any]:
        return {}


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a seeded planner does what it is shown."""

    add: float = 1.0
    """Takes over a field that the input lacks."""

    rewrite: float = 1.0
    """Takes over another value for a field that the input has."""

    conditional: float = 1.0
    """The same where the value depends on a condition."""

    last: float = 0.0
    """Of several values takes the last."""

    follow: float = 1.0
    """Follows the fix in the server's answer where that adds a field."""

    follow_rewrite: float = 1.0
    """Follows it where it rewrites a value."""

    guess: float = 0.0
    """Finds by itself what a conditional rewrite sets, where it is shown nothing."""


class SeededPlanner(SimulatedPlanner):
    """Does what it is shown at a rate for each shape of hint, by the chance of its seed."""

    def __init__(
        self,
        name: str,
        rates: Rates,
        seed: int,
        conditional_fields: frozenset[str],
        answers: Sequence[Answer] = (),
        tuned_to: str | None = None,
    ) -> None:
        super().__init__(name)
        self.tuned_to = tuned_to
        """The model of the paper's that the rates were set after. Runs are recorded as tuned to it."""
        self._rates = rates
        self._conditional_fields = conditional_fields
        self._answers = answers
        self._chance = Random(f"{name}:{seed}")  # noqa: S311

    def _accepts(self, amendment: Amendment) -> bool:
        if amendment.is_added:
            rate = self._rates.add
        elif amendment.field in self._conditional_fields:
            rate = self._rates.conditional
        else:
            rate = self._rates.rewrite
        return self._chance.random() < rate

    def _prefers_last(self, amendment: Amendment) -> bool:
        return self._chance.random() < self._rates.last

    def _follows(self, *, is_adding: bool) -> bool:
        return self._chance.random() < (self._rates.follow if is_adding else self._rates.follow_rewrite)

    def _guessed(self, text: _Text) -> Mapping[str, Any]:
        shown = {amendment.field for amendment in text.amendments}
        for given, sets in self._answers if self._rates.guess else ():
            if shown.isdisjoint(sets) and given.items() <= text.task_input.items():
                return sets if self._chance.random() < self._rates.guess else {}
        return {}


PRESETS: dict[str, Rates] = {
    "claude-haiku-4-5": Rates(rewrite=0.85, last=1 / 6),
    "claude-sonnet-4-6": Rates(add=8 / 9, rewrite=0.45),
    "claude-sonnet-5": Rates(add=1 / 9, rewrite=0.75, follow=0.65),
    "gpt-5.4-mini": Rates(last=1.0, guess=0.2),
    "deepseek-v4-flash": Rates(add=0.04, conditional=0.95, guess=0.45),
    "gpt-5-mini": Rates(),
    "gemini-3.5-flash": Rates(add=7 / 9, conditional=0.25, rewrite=0.6, follow=0.6, follow_rewrite=0.03),
}
"""Rates that bring a planner near to what the paper reports of each model. They are an input, not a finding about the model."""

_SEEDED, _TUNED = "seeded", "sim"


def stand_in_for(model: str) -> str:
    """What the planner is called that is tuned to a model of the paper's."""
    return f"{_TUNED}:{model}"


_PLAIN = {
    "compliant": {},
    "compliant-last": {"takes_last": True},
    "conservative": {"adds": False},
    "forgetful": {"adds": False, "rewrites": False},
}

DETERMINISTIC = frozenset(_PLAIN)
"""The planners that have no chance in them: what they come to follows from stream, arm and protocol."""


def simulated_planner(
    name: str, seed: int, conditional_fields: frozenset[str], answers: Sequence[Answer] = ()
) -> SimulatedPlanner | None:
    """A simulated planner by what it is called; None for a model, which has a slash in its name.

    - `compliant`, `compliant-last`, `conservative`, `forgetful`
    - `seeded:` with rates, as in `seeded:add=0.5,rewrite=0.9`
    - `sim:` with the name of a model of the paper's, for a seeded planner that is tuned to it

    Those with rates are told which fields are rewritten on a condition, and what they may find by themselves: no text shows either.
    """
    if name in _PLAIN:
        return SimulatedPlanner(name, **_PLAIN[name])
    kind, _, rest = name.partition(":")
    if kind == _SEEDED:
        return SeededPlanner(name, _rates(name, rest), seed, conditional_fields, answers)
    if kind == _TUNED:
        if rest not in PRESETS:
            raise PlannerError(f"there is no preset {rest!r}; there are {', '.join(PRESETS)}")
        return SeededPlanner(name, PRESETS[rest], seed, conditional_fields, answers, tuned_to=rest)
    if "/" not in name:
        simulated = [*_PLAIN, f"{_SEEDED}:RATES", *map(stand_in_for, PRESETS)]
        raise PlannerError(
            f"there is no planner {name!r}; there are {', '.join(simulated)}, and models as in vendor/model"
        )
    return None


def _rates(name: str, text: str) -> Rates:
    try:
        given = {
            rate.strip(): float(value)
            for rate, _, value in (part.partition("=") for part in text.split(",") if part)
        }
        rates = msgspec.convert(given, Rates)
    except (ValueError, msgspec.ValidationError):
        raise PlannerError(
            f"{name!r} is no seeded planner; write seeded:add=0.5,rewrite=0.9,conditional=0.7,last=0,guess=0,follow=1,follow_rewrite=1"
        ) from None
    if not all(0 <= rate <= 1 for rate in given.values()):
        raise PlannerError(f"the rates of {name!r} must be between 0 and 1")
    return rates


def _read(messages: Sequence[Message]) -> _Text:
    wording = wording_of_system(messages[0].content)
    task = messages[1].content
    # a task may speak of an input itself; the true one is the last
    is_amended = task.rfind(f"{wording.memory.amended}\n") > task.rfind(f"{wording.input}\n")
    task_input, amendments = _amended(task, wording) if is_amended else _listed(task, wording)
    if len(messages) == 2:
        return _Text(task_input, amendments, None, [])
    reply, answer = messages[-2].content, messages[-1].content
    suggestions: list[dict[str, Any]] = []
    if answer.startswith(wording.answered.partition("{")[0]):
        told = request_in(answer) or {}
        feedback = told.get("recovery_feedback") or {}
        suggestions = [one["parameters"] for one in feedback.get("suggestions", ())]
    return _Text(task_input, amendments, request_in(reply) or task_input, suggestions)


def _amended(task: str, wording: Wording) -> tuple[dict[str, Any], list[Amendment]]:
    """Level 3: the input as it was before the amendments, and these."""
    first, *lines = task.rpartition(f"{wording.memory.amended}\n")[2].split("\n")
    was = f" ({wording.memory.was} "
    task_input: dict[str, Any] = msgspec.json.decode(first)
    amendments = []
    for line in lines:
        if named := _AMENDMENT.match(line):
            name = named["name"]
            values, rest = _values_at(named.end(), line)
            is_added = not rest.startswith(was)
            amendments.append(Amendment(name, values, is_added))
            if is_added:
                task_input.pop(name, None)
            else:
                task_input[name] = _value_at(len(was), rest)[0]
    return task_input, amendments


def _values_at(position: int, line: str) -> tuple[tuple[Any, ...], str]:
    """The values that a line lists from a position on, and what comes after them."""
    value, end = _value_at(position, line)
    values = [value]
    while line.startswith(_OR, end):
        value, end = _value_at(end + len(_OR), line)
        values.append(value)
    return tuple(values), line[end:]


def _value_at(position: int, line: str) -> tuple[Any, int]:
    """The value at a position, and where it ends; what looks like a mark inside a text is part of that text."""
    return json.JSONDecoder().raw_decode(line, position)


def _listed(task: str, wording: Wording) -> tuple[dict[str, Any], list[Amendment]]:
    """Level 2, or no memory: the input, and the fixes that are listed after it."""
    first, *lines = task.rpartition(f"{wording.input}\n")[2].split("\n")
    task_input: dict[str, Any] = msgspec.json.decode(first)
    values: dict[str, list[Any]] = {}
    for line in lines:
        listed: Mapping[str, Any] = request_in(line) or {} if line.startswith("{") else {}
        for field, value in listed.get("parameters", {}).items():
            values.setdefault(field, []).append(value)
    return task_input, [
        Amendment(field, tuple(alternatives), field not in task_input)
        for field, alternatives in values.items()
    ]


@lru_cache(maxsize=8192)
def estimated_tokens(text: str) -> int:
    """How many tokens a text comes to, by one public tokenizer."""
    return len(_tokenizer().encode(text))


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    try:
        import splintr
    except ImportError as error:
        raise PlannerError("the lab needs the extra shelflife[lab]") from error
    return splintr.Tokenizer.from_pretrained(_ENCODING)
