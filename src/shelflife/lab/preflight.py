"""The compliance preflight: will memory pay with this planner? Known-valid fixes, a few calls for each shape of hint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import msgspec

from shelflife.client import Guard, Memory
from shelflife.client.entries import Entry
from shelflife.client.memory import Exchange
from shelflife.lab import prompting
from shelflife.lab.apis import APIS, Api
from shelflife.lab.intervals import Interval, wilson
from shelflife.lab.planners import Planner, Proposal
from shelflife.lab.prompting import Consume, messages_for, request_in
from shelflife.lab.scenarios import Episode, HintShape, load
from shelflife.testing import serving

__all__ = ["CallCount", "Finding", "Preflight", "ShapeVerdict", "preflight"]

_FAMILIES: dict[HintShape, tuple[str, str]] = {
    "add a field": ("undrifted", "partner"),
    "rewrite a value": ("recipes-undrifted", "soy"),
    "conditional rewrite": ("undrifted", "annual"),
}
"""For each shape, a stream and a family of it whose fix is of that shape."""

_IN_WORDS = {
    "add a field": "add a field",
    "rewrite a value": "rewrite a value",
    "conditional rewrite": "rewrite a value on a condition",
}

_WAYS = (Consume.LEVEL_2, Consume.LEVEL_3, Consume.APPLY)


class CallCount(NamedTuple):
    """What a preflight costs."""

    trials: int

    @property
    def calls(self) -> int:
        """Of the planner: each trial is one; each shape has one episode without memory, of up to two."""
        return len(_FAMILIES) * (len(_WAYS) * self.trials + 2)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """How a planner does with a valid fix of one shape that reaches it in one way."""

    consume: str
    trials: int
    complied: int
    low: float
    high: float
    """The 95 % interval of the compliance."""

    expected_saving: float | None
    """The share of the tokens of an episode without memory that is saved; None where that is not known."""

    saving_low: float | None
    saving_high: float | None

    @property
    def compliance(self) -> float:
        return self.complied / self.trials


class ShapeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one shape of hint."""

    shape: str
    follows_the_server: bool
    """Whether the planner, without memory, took over the fix from the server's answer."""

    findings: list[Finding]
    recommendation: str


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome."""

    planner: str
    planner_kind: str
    trials: int
    shapes: list[ShapeVerdict]


class _Cost(NamedTuple):
    """The tokens of an episode without memory: its first attempt, and the second one that follows the server's fix."""

    first: int
    second: int
    is_completed: bool


def preflight(
    planner: Planner, *, trials: int = 8, on_call: Callable[[int], None] = lambda count: None
) -> Preflight:
    """Try a planner with valid fixes of every shape, on the real servers."""
    shapes = [
        _verdict(shape, planner, trials, stream, family, on_call)
        for shape, (stream, family) in _FAMILIES.items()
    ]
    return Preflight(planner=planner.name, planner_kind=planner.kind, trials=trials, shapes=shapes)


def _verdict(
    shape: str, planner: Planner, trials: int, stream: str, family: str, on_call: Callable[[int], None]
) -> ShapeVerdict:
    scenario = load(stream)
    api = APIS[scenario.api]
    with _bench(api) as bench:
        cost = _without_memory(bench, planner, _episode(stream, family, 0), on_call)
        findings = []
        for consume in _WAYS:
            outcomes = []
            for trial in range(trials):
                outcomes.append(_trial(bench, planner, _episode(stream, family, 1 + trial), consume))
                on_call(1)
            findings.append(_finding(consume, outcomes, cost))
    return ShapeVerdict(
        shape=shape,
        follows_the_server=cost.is_completed,
        findings=findings,
        recommendation=_recommendation(_IN_WORDS[shape], findings),
    )


class _Bench(NamedTuple):
    """A server, and a memory that has learned from it."""

    api: Api
    origin: str
    http: httpx2.Client
    memory: Memory

    def send(self, request: dict[str, Any]) -> httpx2.Response:
        method, path = self.api.operation.split(" ")
        response = self.http.request(method, path, json=request)
        headers = {name.lower(): value for name, value in response.headers.items()}
        self.memory.observe(
            Exchange(
                self.origin, self.api.operation, request, response.status_code, headers, response.content
            )
        )
        return response

    def recall(self, request: dict[str, Any]) -> list[Entry]:
        return self.memory.recall(self.origin, self.api.operation, request)


@contextmanager
def _bench(api: Api) -> Iterator[_Bench]:
    with (
        serving(api.app(api.provider())) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=30) as http,
    ):
        yield _Bench(api, address, http, Memory())


def _episode(stream: str, family: str, seed: int) -> Episode:
    """A task of the family, otherwise worded for every seed."""
    return next(episode for episode in load(stream).episodes(seed) if episode.family.name == family)


def _without_memory(
    bench: _Bench, planner: Planner, episode: Episode, on_call: Callable[[int], None]
) -> _Cost:
    """An episode with nothing remembered; the memory learns the fix from it."""
    spent: list[int] = []
    before: list[prompting.Exchange] = []
    is_completed = False
    while not is_completed and len(spent) < 2:
        proposal = planner.propose(messages_for(bench.api, episode, Consume.LEVEL_3, [], before))
        on_call(1)
        spent.append(_tokens(proposal))
        request = request_in(proposal.text)
        if request is None:
            before.append(prompting.Exchange(proposal.text, None, ""))
            continue
        response = bench.send(request)
        is_completed = response.is_success
        before.append(prompting.Exchange(proposal.text, response.status_code, response.text))
    if not bench.recall(episode.input):
        bench.send(episode.input)  # the planner's own request did not meet the constraint as it stands
    return _Cost(spent[0], spent[-1], is_completed)


class _Outcome(NamedTuple):
    has_complied: bool
    tokens: int


def _trial(bench: _Bench, planner: Planner, episode: Episode, consume: Consume) -> _Outcome:
    entries = bench.recall(episode.input)
    proposal = planner.propose(messages_for(bench.api, episode, consume, entries, []))
    request = request_in(proposal.text)
    if request is None:
        return _Outcome(False, _tokens(proposal))
    if consume is Consume.APPLY:
        request = bench.memory.amend(
            bench.origin, bench.api.operation, request, Guard(allows_money=True)
        ).request
    return _Outcome(bench.send(request).is_success, _tokens(proposal))


def _finding(consume: Consume, outcomes: Sequence[_Outcome], cost: _Cost) -> Finding:
    complied = sum(outcome.has_complied for outcome in outcomes)
    sure = wilson(complied, len(outcomes)) or Interval(0.0, 1.0)
    first = sum(outcome.tokens for outcome in outcomes) / len(outcomes)

    def saving(compliance: float) -> float | None:
        if not cost.is_completed:
            return None
        return 1 - (first + (1 - compliance) * cost.second) / (cost.first + cost.second)

    return Finding(
        consume=consume.value,
        trials=len(outcomes),
        complied=complied,
        low=sure.low,
        high=sure.high,
        expected_saving=saving(complied / len(outcomes)),
        saving_low=saving(sure.low),
        saving_high=saving(sure.high),
    )


def _recommendation(shape: str, findings: Sequence[Finding]) -> str:
    *shown, applied = findings
    best = max(shown, key=lambda finding: (finding.complied, finding.consume))
    if best.expected_saving is None:
        return (
            f"The planner did not take over the server's own fix to {shape}, so what memory would save is not known;"
            f" with apply {applied.complied} of {applied.trials} requests were right at once."
        )
    will = "apply will" if applied.complied == applied.trials else "apply will in part"
    if best.expected_saving <= 0:
        return f"Memory in the prompt will not pay for fixes that {shape}; {will}."
    if best.saving_low is not None and best.saving_low > 0:
        return f"Memory in the prompt pays for fixes that {shape}: use Level {best.consume}, or apply."
    return (
        f"Memory in the prompt probably pays for fixes that {shape}, at Level {best.consume}; more trials would tell,"
        f" and {will}."
    )


def _tokens(proposal: Proposal) -> int:
    return proposal.usage.prompt + proposal.usage.completion
