"""The compliance preflight: will memory pay with this planner? Known-valid fixes, a few calls for each shape of hint."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count, cycle, islice
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2
import msgspec

import shelflife
from shelflife.client import Entry, Exchange, Guard, Memory, Reply
from shelflife.client.entries import digest_of
from shelflife.client.reading import read_contract
from shelflife.lab import prompting
from shelflife.lab.apis import APIS, Api
from shelflife.lab.intervals import Interval, wilson
from shelflife.lab.planners import Message, Planner, Proposal
from shelflife.lab.prompting import messages_for, request_in
from shelflife.lab.records import RecordsError, for_a_file
from shelflife.lab.scenarios import Episode, HintShape, Scenario, load
from shelflife.lab.spec import Consume
from shelflife.lab.whole_files import write_whole
from shelflife.testing import serving

__all__ = ["Finding", "Preflight", "ShapeVerdict", "calls_of", "keep_preflight", "preflight", "preflights_in"]

_FAMILIES: dict[HintShape, tuple[str, str]] = {
    "add a field": ("undrifted", "partner"),
    "rewrite a value": ("recipes-undrifted", "soy"),
    "conditional rewrite": ("undrifted", "annual"),
}
"""For each shape, a stream and a family of it whose fix is of that shape."""

_IN_WORDS = {"conditional rewrite": "rewrite a value on a condition"}
"""What a fix of a shape does, where the name of the shape does not say it."""

_WAYS = (Consume.LEVEL_2, Consume.LEVEL_3, Consume.APPLY)


_LONGEST_NAME = 120
_MOST_ANSWERS = 5
"""Of a planner in the episode without memory, those that hold no request included."""

_ENOUGH_FAILURES = 5
"""So many trials without a single success are enough to say that memory will not pay."""


def calls_of(trials: int) -> int:
    """How often a preflight asks the planner: once a trial, and twice for the episode without memory of every shape.

    A planner that succeeds without memory is asked once less. One that answers without a request is asked more often.
    """
    return len(_FAMILIES) * (len(_WAYS) * trials + 2)


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
    follows_the_server: bool | None
    """Whether the planner took over the fix from the server's answer, without memory. None when it never saw one."""

    findings: list[Finding]
    recommendation: str


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome."""

    planner: str
    planner_kind: Literal["simulated", "model"]
    tuned_to: str | None
    """The model of the paper's that a simulated planner was tuned to."""

    trials: int
    counted_by: Literal["vendor", "estimated"]
    """Who counted the tokens that a saving is a share of."""

    shapes: list[ShapeVerdict]
    started_at: str
    version: str
    """Of shelflife."""


class _Baseline(NamedTuple):
    """An episode without memory, in tokens: the attempt that met the constraint, and the one after the server's fix."""

    first: int = 0
    second: int = 0
    follows_the_server: bool | None = None
    is_right_at_once: bool = False
    """There was nothing to fix, and so no second attempt."""

    def saving(self, first: float, compliance: float) -> float | None:
        """The share of the tokens that memory saves, when a first attempt with it costs so much and succeeds so often."""
        if not (self.follows_the_server or self.is_right_at_once):
            return None
        return 1 - (first + (1 - compliance) * self.second) / (self.first + self.second)


def preflight(
    planner: Planner, *, trials: int = 8, on_call: Callable[[int], None] = lambda count: None
) -> Preflight:
    """Try a planner with valid fixes of every shape, on the real servers."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    asked = _Asked(planner)
    shapes = [
        _verdict(shape, asked, trials, stream, family, on_call)
        for shape, (stream, family) in _FAMILIES.items()
    ]
    return Preflight(
        planner=planner.name,
        planner_kind=planner.kind,
        tuned_to=getattr(planner, "tuned_to", None),  # only those that are tuned have it
        trials=trials,
        counted_by="vendor" if asked.sources == {"vendor"} else "estimated",
        shapes=shapes,
        started_at=started_at,
        version=shelflife.__version__,
    )


class _Asked:
    """A planner that is asked, and who counts its tokens."""

    def __init__(self, planner: Planner) -> None:
        self.name = planner.name
        self.kind = planner.kind
        self.sources: set[str] = set()
        self._planner = planner

    def propose(self, messages: Sequence[Message]) -> Proposal:
        proposal = self._planner.propose(messages)
        self.sources.add(proposal.usage.source)
        return proposal


_KEPT = "preflight--"


def keep_preflight(found: Preflight, folder: Path) -> Path:
    """Keep what was found in a folder of records, where the report finds it. It takes the place of an earlier one of the planner."""
    path = folder / f"{_KEPT}{for_a_file(found.planner)[:_LONGEST_NAME]}--{digest_of(found.planner)[:8]}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(found), indent=1))
    except OSError as error:
        raise RecordsError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
    return path


def preflights_in(folder: Path) -> list[Preflight]:
    """All that were kept in a folder."""
    found = []
    for path in sorted(folder.glob(f"{_KEPT}*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Preflight))
        except OSError as error:
            raise RecordsError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RecordsError(f"{path} is no preflight: {error}; move it away") from None
    return found


def _verdict(
    shape: str, planner: Planner, trials: int, stream: str, family: str, on_call: Callable[[int], None]
) -> ShapeVerdict:
    scenario = load(stream)
    first, *others = _tasks(scenario, family, 1 + trials)
    with _bench(APIS[scenario.api], first) as bench:
        baseline = _without_memory(bench, planner, first, on_call)
        findings = []
        for consume in _WAYS:
            outcomes = []
            for episode in others:
                outcomes.append(_trial(bench, planner, episode, consume))
                on_call(1)
            findings.append(_finding(consume, outcomes, baseline))
    return ShapeVerdict(
        shape=shape,
        follows_the_server=baseline.follows_the_server,
        findings=findings,
        recommendation=_recommendation(_IN_WORDS.get(shape, shape), findings, baseline),
    )


def _tasks(scenario: Scenario, family: str, task_count: int) -> list[Episode]:
    """Tasks of a family, no two with the same input as long as the stream has enough values to vary."""
    wanted = scenario.families[family].input
    distinct_count = prod(len(values) for field, values in scenario.varied.items() if field in wanted)
    found: dict[bytes, Episode] = {}
    for seed in count():
        for episode in scenario.episodes(seed):
            if episode.family.name == family:
                found.setdefault(msgspec.json.encode(episode.input), episode)
        if len(found) >= min(task_count, distinct_count):
            break
    return list(islice(cycle(found.values()), task_count))


class _Bench(NamedTuple):
    """A server, and a memory of the fix that it gives to a task. The memory learns nothing from what the planner sends."""

    api: Api
    origin: str
    http: httpx2.Client
    memory: Memory

    def send(self, request: dict[str, Any]) -> httpx2.Response:
        method, path = self.api.operation.split(" ")
        return self.http.request(method, path, json=request)

    def learn(self, request: dict[str, Any]) -> None:
        response = self.send(request)
        reply = Reply(response.status_code, response.content, response.headers)
        self.memory.observe(Exchange(self.origin, self.api.operation, request, reply))

    def recall(self, request: dict[str, Any]) -> list[Entry]:
        return self.memory.recall(self.origin, self.api.operation, request)


@contextmanager
def _bench(api: Api, task: Episode) -> Iterator[_Bench]:
    with (
        serving(api.app(api.provider())) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=30) as http,
    ):
        bench = _Bench(api, address, http, Memory())
        bench.learn(task.input)
        yield bench


def _without_memory(
    bench: _Bench, planner: Planner, episode: Episode, on_call: Callable[[int], None]
) -> _Baseline:
    """An episode with nothing remembered, up to the attempt after the server's fix."""
    before: list[prompting.Turn] = []
    refused: int | None = None
    for _ in range(_MOST_ANSWERS):
        proposal = planner.propose(messages_for(bench.api, episode, Consume.LEVEL_3, [], before))
        on_call(1)
        request = request_in(proposal.text)
        if request is None:
            before.append(prompting.Turn(proposal.text, None, ""))
            continue
        response = bench.send(request)
        spent = _tokens(proposal)
        if refused is not None:
            return _Baseline(refused, spent, response.is_success)
        if response.is_success:
            return _Baseline(spent, is_right_at_once=True)
        if _has_fix(response):
            refused = spent
        before.append(prompting.Turn(proposal.text, response.status_code, response.text))
    return _Baseline(follows_the_server=None if refused is None else False)


def _has_fix(response: httpx2.Response) -> bool:
    contract = read_contract(Reply(response.status_code, response.content, response.headers))
    return contract is not None and bool(contract.suggestions)


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
            bench.origin, bench.api.operation, request, Guard(decides_for_caller=True)
        ).request
    return _Outcome(bench.send(request).is_success, _tokens(proposal))


def _finding(consume: Consume, outcomes: Sequence[_Outcome], baseline: _Baseline) -> Finding:
    complied = sum(outcome.has_complied for outcome in outcomes)
    sure = wilson(complied, len(outcomes)) or Interval(0.0, 1.0)
    first = sum(outcome.tokens for outcome in outcomes) / len(outcomes)
    return Finding(
        consume=consume.value,
        trials=len(outcomes),
        complied=complied,
        low=sure.low,
        high=sure.high,
        expected_saving=baseline.saving(first, complied / len(outcomes)),
        saving_low=baseline.saving(first, sure.low),
        saving_high=baseline.saving(first, sure.high),
    )


def _recommendation(shape: str, findings: Sequence[Finding], baseline: _Baseline) -> str:
    *shown, applied = findings
    best = max(shown, key=lambda finding: (finding.complied, finding.consume))
    if baseline.is_right_at_once:
        return (
            f"The planner needs no memory for fixes that {shape}: without one its request was accepted before the server"
            " had to give a fix."
        )
    if best.expected_saving is None or best.saving_low is None:
        why = (
            "did not come to see the server's fix"
            if baseline.follows_the_server is None
            else "did not take over the server's own fix"
        )
        return (
            f"The planner {why} to {shape}, so what memory would save is not known;"
            f" with apply {applied.complied} of {applied.trials} requests were right at once."
        )
    if best.expected_saving <= 0:
        verdict = "will not pay" if _will_not_pay(best) else "probably will not pay"
        return f"Memory in the prompt {verdict} for fixes that {shape}; {_of_apply(applied)}."
    if best.saving_low > 0:
        use = f"use Level {best.consume}" + (", or apply" if applied.complied == applied.trials else "")
        return f"Memory in the prompt pays for fixes that {shape}: {use}."
    return (
        f"Memory in the prompt probably pays for fixes that {shape}, at Level {best.consume}; more trials would tell,"
        f" and {_of_apply(applied)}."
    )


def _will_not_pay(best: Finding) -> bool:
    """Whether that is as good as sure, and not only probable.

    It is when even the upper end of the interval saves nothing. It also is when enough trials brought not one success: the
    interval of none in eight reaches up to 32 %, but the best estimate is that every prompt is longer and no retry is saved.
    """
    is_never = best.complied == 0 and best.trials >= _ENOUGH_FAILURES
    return is_never or (best.saving_high is not None and best.saving_high <= 0)


def _of_apply(applied: Finding) -> str:
    if applied.complied == 0:
        return "apply will not either"
    return "apply will" if applied.complied == applied.trials else "apply will in part"


def _tokens(proposal: Proposal) -> int:
    return proposal.usage.prompt + proposal.usage.completion
