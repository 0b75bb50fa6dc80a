"""What a run came to, from its records alone. What is not there is None, never zero."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from shelflife.lab.growth import SinceDrift, since_each
from shelflife.lab.judging import eligible_by_width, is_true, precision, precision_by
from shelflife.lab.paper import SPLIT_FIELDS
from shelflife.lab.records import (
    Alerted,
    Asked,
    Attempted,
    ClientScored,
    Disclosed,
    Distrusted,
    Drifted,
    EpisodeEnded,
    Evicted,
    Foreseen,
    Model,
    Record,
    Restamped,
    RunEnded,
    RunStarted,
    Shown,
)
from shelflife.lab.spec import RunSpec
from shelflife.lab.spending import Tokens, Wire, tokens_of, wire_of

__all__ = ["FirstTry", "ForeseenTenth", "RunScore", "SavingFactors", "as_json", "is_whole", "score_of"]

_TENTHS = 10
_CARRIED_OUT = 2
"""Of a status, its hundreds."""


class FirstTry(msgspec.Struct, frozen=True):
    """Of so many episodes, those that succeeded at the first attempt."""

    episodes: int
    first_try: int

    @property
    def percent(self) -> float | None:
        """The rate; None when there was no episode."""
        return 100 * self.first_try / self.episodes if self.episodes else None


class SavingFactors(msgspec.Struct, frozen=True, kw_only=True):
    """The savings equation: what memory saves is what is valid of it, times what the planner makes of that.

    Both over the episodes that meet a constraint not for the first time, stale slots included.
    """

    chances: int
    """The episodes in which a memory could have helped."""

    valid: int
    """Those in which it showed something, and all it showed was true."""

    complied: int
    """Of the valid ones, those that succeeded at the first attempt."""

    @property
    def validity(self) -> float | None:
        return self.valid / self.chances if self.chances else None

    @property
    def compliance(self) -> float | None:
        return self.complied / self.valid if self.valid else None


class ForeseenTenth(msgspec.Struct, frozen=True):
    """The uses that were said to be stale with a chance within one tenth."""

    uses: int
    said: float
    """The sum of these chances."""

    stale: int
    """How many were."""


class RunScore(msgspec.Struct, frozen=True, kw_only=True):
    """One run in numbers. Their names are those of `shelflife lab run --json`.

    Where several agents play, the numbers are those of the first. Two sorts are not: what was done to the memory that all of them
    share, and what any of them did that was stale, mended or injected.
    """

    spec: RunSpec
    title: str
    """Of the stream, for people."""

    planner_kind: Literal["simulated", "model"]
    tuned_to: str | None
    """The model of the paper's that a simulated planner was tuned to."""

    model: Model | None
    """What was asked for, and what the answers say was served; several are listed."""

    hostile: str | None
    """What was done to the agents."""

    history: str | None
    """Whose real releases the drift was; None where it was thought up."""

    digest: str
    """Of the stream as it was played, and of the address of the model."""

    episodes: int
    completed: int
    uncompleted: dict[str, int]
    """By class, the episodes that were given up."""

    first_try: int
    first_try_episodes: list[int]
    """Which they were."""

    retries: int
    """Attempts beyond the first."""

    retries_by_agent: list[int]
    mended: int
    """How often a request was refused because its remembered values had gone stale, and was mended without the planner."""

    stale_injections: int
    """The first attempts whose request was sent with the value of a remembered fix that was not true any more."""

    stale_executions: int
    """The requests that the server carried out with the value of a remembered fix that was not true any more."""

    misapplied: int
    """The first attempts whose request was sent with the value of a fix that another family of tasks had taught, and that the server
    would not give to this one."""

    injected: int | None
    """The first requests of episodes that were carried out with a value that the server had slipped into a remembered fix.

    None where it does no such thing.
    """

    injected_by_answers: int | None
    """The same for later requests, into which the value came by the server's answer in the same episode."""

    disclosed: int | None
    """How many of the server's own names agents were told; None where nobody listens."""

    distrusted: int | None
    """How often the memory found a reason not to believe the server; None where it needs no signature."""

    drifted_after: list[int]
    """The moments of drift, each by the episode before it."""

    evictions: int
    evictions_by_event: list[int]
    """For each moment of drift, the evictions from then to the next."""

    by_event: list[SinceDrift]
    """The same for other numbers."""

    foreseen: list[ForeseenTenth] | None
    """Before uses, how likely they were said to be stale, by tenths, and how many were; None where nothing was foreseen."""

    first_verdict: str | None
    """What the server made of the agents before the first change, from their requests; at the end where none comes, and None where nobody scored them."""

    verdict: str | None
    """The same at the end."""

    eviction_precision: float | None
    """The share of evictions that were right: the fix was stale, or rested on a table that the server would name no more."""

    precision_by: dict[str, float | None]
    """The same by other definitions of a right eviction: by `value`, which is the one above, by `row`, by `table` and by `count`."""

    restamps: int
    """The entries that were kept though a table of theirs had moved, or they had come to rest on another: once for each episode in
    which the memory found that out."""

    alerts: list[int]
    """The episodes in which the memory noticed that rules had changed."""

    compliance: float | None
    """Percent of the eligible episodes that succeeded at the first attempt; None for an arm without memory."""

    compliance_by_width: dict[int, FirstTry] | None
    """The same by how many episodes after each drift are left out as stale slots; None for an arm without memory."""

    eligible: int
    eligible_episodes: list[int]
    eligible_first_try: int
    classes: dict[str, FirstTry]
    governed_scored: FirstTry
    """The governed class without the stale slots."""

    before_split: FirstTry | None
    """The class that the stream counts apart, up to the episode that it names; None where it names none."""

    after_split: FirstTry | None
    """The same class from then on."""

    hints: dict[str, str]
    """By family, what the server's fix does to a request."""

    tokens: Tokens
    wire: Wire
    saving: SavingFactors
    started_at: str
    version: str
    """Of shelflife."""

    spent: RunEnded


def is_whole(records: Sequence[Record]) -> bool:
    """Whether a run has come to its end, with every episode ended once by every agent."""
    if not records or not isinstance(records[0], RunStarted) or not isinstance(records[-1], RunEnded):
        return False
    start = records[0]
    ended = [record for record in records if isinstance(record, EpisodeEnded)]
    agent_count = start.spec.conduct.agents
    by_agent = [[one.episode for one in ended if one.agent == agent] for agent in range(agent_count)]
    return by_agent == [list(range(len(start.classes)))] * agent_count


def score_of(records: Sequence[Record]) -> RunScore:
    """The score of a whole run."""
    run = _Run.from_records(records)
    return RunScore(
        **_what_was_played(run),
        **_how_it_went(run),
        **_what_went_stale(run),
        **_what_was_forgotten(run),
        **_how_often_at_once(run),
        tokens=tokens_of(run.attempts),
        wire=wire_of(run.attempts, run.asked),
        saving=_saving(run.start, run.attempts, run.first_try, run.drifts),
    )


class _Run(NamedTuple):
    """The records of a run, by what they tell. Where several agents play, all but two sorts are those of the first."""

    records: Sequence[Record]
    start: RunStarted
    spent: RunEnded
    by_all: list[Attempted]
    """The attempts of all agents."""

    attempts: list[Attempted]
    asked: list[Asked]
    ended: dict[int, EpisodeEnded]
    evictions: list[Evicted]
    """Of the memory that all agents share."""

    drifts: list[Drifted]
    first_try: set[int]

    @classmethod
    def from_records(cls, records: Sequence[Record]) -> "_Run":
        by_all = [record for record in records if isinstance(record, Attempted)]
        ended = _ended(records, 0)
        return cls(
            records,
            next(record for record in records if isinstance(record, RunStarted)),
            next(record for record in reversed(records) if isinstance(record, RunEnded)),
            by_all,
            [one for one in by_all if one.agent == 0],
            [record for record in records if isinstance(record, Asked) and record.agent == 0],
            ended,
            [record for record in records if isinstance(record, Evicted) and not record.is_given_again],
            [record for record in records if isinstance(record, Drifted)],
            {index for index, one in ended.items() if one.is_completed and one.attempts == 1},
        )


def _what_was_played(run: _Run) -> dict[str, Any]:
    start = run.start
    return {
        "spec": start.spec,
        "title": start.title,
        "planner_kind": start.planner_kind,
        "tuned_to": start.tuned_to,
        "model": _served(start.model, run.attempts),
        "hostile": start.hostile,
        "history": start.history,
        "digest": start.digest,
        "hints": start.hints,
        "started_at": start.started_at,
        "version": start.version,
        "spent": run.spent,
    }


def _how_it_went(run: _Run) -> dict[str, Any]:
    start, ended = run.start, run.ended
    agents = range(start.spec.conduct.agents)
    return {
        "episodes": len(ended),
        "completed": sum(one.is_completed for one in ended.values()),
        "uncompleted": {
            name: sum(not ended[index].is_completed for index in _of(start, name))
            for name in dict.fromkeys(start.classes)
        },
        "first_try": len(run.first_try),
        "first_try_episodes": sorted(run.first_try),
        "retries": _retries(ended),
        "retries_by_agent": [_retries(_ended(run.records, agent)) for agent in agents],
        "mended": sum(one.mended for one in run.by_all),
        "first_verdict": _first_verdict(run.records),
        "verdict": _first_verdict(reversed(run.records)),
    }


def _first_verdict(records: Iterable[Record]) -> str | None:
    return next((record.verdict for record in records if isinstance(record, ClientScored)), None)


def _what_went_stale(run: _Run) -> dict[str, Any]:
    start, by_all, drifts = run.start, run.by_all, run.drifts
    disclosed = (_count(record) for record in run.records if isinstance(record, Disclosed))
    distrusted = sum(isinstance(record, Distrusted) for record in run.records)
    injected = [one.episode for one in by_all if _has_stale(_sent_with(one), one, drifts)]
    executed = [
        one.episode
        for one, carried in _with_carried(by_all)
        if _is_carried_out(one) and _has_stale(carried, one, drifts)
    ]
    since = since_each(
        _moments(drifts), run.ended, run.attempts, run.asked, run.evictions, injected, executed
    )
    return {
        "stale_injections": len(injected),
        "stale_executions": len(executed),
        "by_event": list(since),
        "foreseen": _foreseen(run.records) if start.spec.conduct.foresees else None,
        "misapplied": sum(_is_misapplied(one, start) for one in by_all),
        "injected": _injected(start, by_all, is_first=True),
        "injected_by_answers": _injected(start, by_all, is_first=False),
        "disclosed": next(disclosed, None),
        "distrusted": distrusted if start.spec.conduct.trust else None,
    }


def _foreseen(records: Sequence[Record]) -> list[ForeseenTenth]:
    tenths: list[list[Foreseen]] = [[] for _ in range(_TENTHS)]
    for record in records:
        if isinstance(record, Foreseen):
            tenths[min(int(record.chance * _TENTHS), _TENTHS - 1)].append(record)
    return [
        ForeseenTenth(len(tenth), sum(one.chance for one in tenth), sum(one.stale for one in tenth))
        for tenth in tenths
    ]


def _what_was_forgotten(run: _Run) -> dict[str, Any]:
    evictions, drifts = run.evictions, run.drifts
    restamped = {
        (record.episode, entry)
        for record in run.records
        if isinstance(record, Restamped)
        for entry in record.entries
    }
    return {
        "drifted_after": _moments(drifts),
        "evictions": len(evictions),
        "evictions_by_event": _by_event(evictions, drifts),
        "eviction_precision": precision(evictions, drifts),
        "precision_by": precision_by(evictions, drifts),
        "restamps": len(restamped),
        "alerts": [record.episode for record in run.records if isinstance(record, Alerted)],
    }


def _how_often_at_once(run: _Run) -> dict[str, Any]:
    start, first_try = run.start, run.first_try
    scored = [index for index in _of(start, start.governed) if index not in start.stale_slots]
    eligible = [index for index in start.eligible if index in run.ended]
    eligible_first_try = len(first_try.intersection(eligible))
    is_defined = start.is_remembering and eligible
    return {
        "compliance": 100 * eligible_first_try / len(eligible) if is_defined else None,
        "compliance_by_width": _by_width(start, run.drifts, first_try) if start.is_remembering else None,
        "eligible": len(eligible),
        "eligible_episodes": eligible,
        "eligible_first_try": eligible_first_try,
        "classes": {name: _rate(_of(start, name), first_try) for name in dict.fromkeys(start.classes)},
        "governed_scored": _rate(scored, first_try),
        "before_split": _split(start, first_try, is_after=False),
        "after_split": _split(start, first_try, is_after=True),
    }


def _ended(records: Sequence[Record], agent: int) -> dict[int, EpisodeEnded]:
    """How the episodes of an agent came out, by their index."""
    return {
        record.episode: record
        for record in records
        if isinstance(record, EpisodeEnded) and record.agent == agent
    }


def _retries(ended: dict[int, EpisodeEnded]) -> int:
    return sum(one.attempts - 1 for one in ended.values())


def _is_carried_out(attempt: Attempted) -> bool:
    return attempt.status is not None and attempt.status // 100 == _CARRIED_OUT


def _injected(start: RunStarted, attempts: Sequence[Attempted], *, is_first: bool) -> int | None:
    """Of the first requests of episodes, which no answer of the server came before; or of the later ones."""
    if start.hostile != "injects":
        return None
    sent = [one for one in attempts if one.status is not None]
    first = {(one.agent, one.episode): one.attempt for one in reversed(sent)}
    return sum(
        bool(one.injected)
        and _is_carried_out(one)
        and (one.attempt == first[one.agent, one.episode]) is is_first
        for one in sent
    )


def _count(disclosed: Disclosed) -> int:
    return len(disclosed.tables) + len(disclosed.keys) + len(disclosed.relations)


def _with_carried(attempts: Iterable[Attempted]) -> Iterator[tuple[Attempted, list[Shown]]]:
    """Each attempt with the remembered fixes whose values its request had."""
    known: dict[tuple[int, int, str], Shown] = {}
    for one in attempts:
        known |= {(one.agent, one.episode, entry.id): entry for entry in (*one.shown, *one.mended_with)}
        yield one, [known[one.agent, one.episode, id] for id in one.carried]


def _sent_with(attempt: Attempted) -> list[Shown]:
    """The remembered fixes that a first attempt was shown, and whose values went into its request."""
    return [entry for entry in attempt.shown if entry.id in attempt.used]


def _is_misapplied(attempt: Attempted, start: RunStarted) -> bool:
    family = start.families[attempt.episode]
    return any(
        start.families[entry.learned_in] != family and entry.id not in attempt.fitting
        for entry in _sent_with(attempt)
    )


def _that_counts(attempt: Attempted) -> list[Shown]:
    """The remembered fixes that a first attempt was shown; of several values for the same, the one that went into the request."""
    chosen = {_subject(entry): entry.id for entry in attempt.shown if entry.id in attempt.used}
    return [entry for entry in attempt.shown if chosen.get(_subject(entry), entry.id) == entry.id]


def _subject(entry: Shown) -> tuple[str, ...]:
    return entry.type, *sorted(entry.parameters)


def _has_stale(entries: Iterable[Shown], attempt: Attempted, drifts: Sequence[Drifted]) -> bool:
    return not all(is_true(entry, attempt.episode, drifts) for entry in entries)


def _served(model: Model | None, attempts: Sequence[Attempted]) -> Model | None:
    if model is None:
        return None
    served = dict.fromkeys(one.served for one in attempts if one.served is not None)
    return Model(model.requested, ", ".join(served) or None)


def _of(start: RunStarted, in_class: str) -> list[int]:
    return [index for index, name in enumerate(start.classes) if name == in_class]


def _rate(indexes: Iterable[int], first_try: set[int]) -> FirstTry:
    chosen = set(indexes)
    return FirstTry(len(chosen), len(chosen & first_try))


def _by_width(start: RunStarted, drifts: Sequence[Drifted], first_try: set[int]) -> dict[int, FirstTry]:
    by_width = eligible_by_width(start, _moments(drifts))
    return {width: _rate(episodes, first_try) for width, episodes in by_width.items()}


def _split(start: RunStarted, first_try: set[int], *, is_after: bool) -> FirstTry | None:
    split = start.split
    if split is None:
        return None
    indexes = _of(start, split.in_class)
    return _rate((index for index in indexes if (index > split.after) is is_after), first_try)


def _moments(drifts: Sequence[Drifted]) -> list[int]:
    return sorted({drift.after for drift in drifts})


def _by_event(evictions: Sequence[Evicted], drifts: Sequence[Drifted]) -> list[int]:
    moments = _moments(drifts)
    latest = [max((m for m in moments if m < eviction.episode), default=None) for eviction in evictions]
    return [latest.count(moment) for moment in moments]


def _saving(
    start: RunStarted, attempts: Sequence[Attempted], first_try: set[int], drifts: Sequence[Drifted]
) -> SavingFactors:
    constrained = {index for index, family in enumerate(start.families) if family in start.hints}
    chances = constrained - set(start.first_meetings)
    valid = {
        one.episode
        for one in attempts
        if one.episode in chances and one.shown and not _has_stale(_that_counts(one), one, drifts)
    }
    return SavingFactors(chances=len(chances), valid=len(valid), complied=len(valid & first_try))


def as_json(score: RunScore) -> dict[str, Any]:
    """The score as `--json` prints it."""
    built: dict[str, Any] = msgspec.to_builtins(score)
    spec = built.pop("spec")
    conduct = spec.pop("conduct")
    built = {**spec, **conduct, **built}
    del built["spent"]["type"]  # a tag of the records
    for name, documented in zip(("before_split", "after_split"), SPLIT_FIELDS, strict=True):
        built[documented] = built.pop(name)
    for name, digits in (("compliance", 1), ("eviction_precision", 2)):
        if built[name] is not None:
            built[name] = round(built[name], digits)
    built["precision_by"] = {
        name: None if value is None else round(value, 2) for name, value in built["precision_by"].items()
    }
    return built
