"""What a run came to, from its records alone. What is not there is None, never zero."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from shelflife.lab.growth import SinceDrift, since_each
from shelflife.lab.paper import SPLIT_FIELDS
from shelflife.lab.records import (
    Alerted,
    Asked,
    Attempted,
    Disclosed,
    Distrusted,
    Drifted,
    EpisodeEnded,
    Evicted,
    Model,
    Record,
    Restamped,
    RunEnded,
    RunStarted,
    Shown,
)
from shelflife.lab.spec import RunSpec

__all__ = ["FirstTry", "RunScore", "SavingFactors", "Tokens", "Wire", "as_json", "is_whole", "score_of"]

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


class Tokens(msgspec.Struct, frozen=True):
    """What the planner was sent and answered."""

    prompt: int
    completion: int
    source: Literal["vendor", "estimated"]

    @property
    def total(self) -> int:
        return self.prompt + self.completion


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What went over the wire between agent and server."""

    responses: int
    bytes: int
    """Of responses: their bodies, and the contract's headers."""

    contract_bytes: int
    request_bytes: int
    contract_request_bytes: int
    """Of the contract's headers of requests, which come to the bytes of their bodies."""

    other_header_bytes: int
    """Of start lines and all other headers, both ways."""

    questions: int
    """How often the memory asked something of its own accord, or was told something by the change feed."""

    question_bytes: int
    """Of what the memory asked of its own accord, and was told by the change feed: URLs, and bodies both ways."""

    question_whole_bytes: int
    """Of the same, whole messages as HTTP/1.1 has them."""

    @property
    def contract_percent(self) -> float | None:
        """The share of the contract in the bytes of the responses."""
        return 100 * self.contract_bytes / self.bytes if self.bytes else None

    @property
    def contract_percent_both_ways(self) -> float | None:
        """The share of the contract in all bytes of requests and responses together, as HTTP/1.1 has them."""
        return self._percent(0)

    @property
    def contract_percent_in_all(self) -> float | None:
        """The same with all that is asked and told beside requests, every byte of which is the contract's."""
        return self._percent(self.question_whole_bytes)

    def _percent(self, beside: int) -> float | None:
        contract = self.contract_bytes + self.contract_request_bytes + beside
        others = (self.bytes - self.contract_bytes) + self.request_bytes + self.other_header_bytes
        whole = contract + others
        return 100 * contract / whole if whole else None


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

    eviction_precision: float | None
    """The share of evictions that were right: the fix was stale, or rested on a table that the server would name no more."""

    restamps: int
    """The entries that were kept though a table of theirs had moved, or they had come to rest on another: once for each episode in
    which the memory found that out."""

    alerts: list[int]
    """The episodes in which the memory noticed that rules had changed."""

    compliance: float | None
    """Percent of the eligible episodes that succeeded at the first attempt; None for an arm without memory."""

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
    start = next(record for record in records if isinstance(record, RunStarted))
    spent = next(record for record in reversed(records) if isinstance(record, RunEnded))
    conduct = start.spec.conduct
    by_all = [record for record in records if isinstance(record, Attempted)]
    attempts = [one for one in by_all if one.agent == 0]
    asked = [record for record in records if isinstance(record, Asked) and record.agent == 0]
    ended = _ended(records, 0)
    evictions = [record for record in records if isinstance(record, Evicted)]
    drifts = [record for record in records if isinstance(record, Drifted)]
    injected = [one.episode for one in by_all if _has_stale(_sent_with(one), one, drifts)]
    executed = [
        one.episode
        for one, carried in _with_carried(by_all)
        if _is_carried_out(one) and _has_stale(carried, one, drifts)
    ]
    first_try = {index for index, one in ended.items() if one.is_completed and one.attempts == 1}
    scored = [index for index in _of(start, start.governed) if index not in start.stale_slots]
    eligible = [index for index in start.eligible if index in ended]
    eligible_first_try = len(first_try.intersection(eligible))
    return RunScore(
        spec=start.spec,
        title=start.title,
        planner_kind=start.planner_kind,
        tuned_to=start.tuned_to,
        model=_served(start.model, attempts),
        hostile=start.hostile,
        history=start.history,
        digest=start.digest,
        episodes=len(ended),
        completed=sum(one.is_completed for one in ended.values()),
        first_try=len(first_try),
        first_try_episodes=sorted(first_try),
        retries=_retries(ended),
        retries_by_agent=[_retries(_ended(records, agent)) for agent in range(conduct.agents)],
        mended=sum(one.mended for one in by_all),
        stale_injections=len(injected),
        stale_executions=len(executed),
        misapplied=sum(_is_misapplied(one, start) for one in by_all),
        injected=_injected(start, by_all, is_first=True),
        injected_by_answers=_injected(start, by_all, is_first=False),
        disclosed=next((_count(record) for record in records if isinstance(record, Disclosed)), None),
        distrusted=sum(isinstance(record, Distrusted) for record in records) if conduct.trust else None,
        drifted_after=_moments(drifts),
        evictions=len(evictions),
        evictions_by_event=_by_event(evictions, drifts),
        by_event=list(since_each(_moments(drifts), ended, attempts, asked, evictions, injected, executed)),
        eviction_precision=_precision(evictions, drifts),
        restamps=len(
            {
                (record.episode, entry)
                for record in records
                if isinstance(record, Restamped)
                for entry in record.entries
            }
        ),
        alerts=[record.episode for record in records if isinstance(record, Alerted)],
        compliance=100 * eligible_first_try / len(eligible) if start.is_remembering and eligible else None,
        eligible=len(eligible),
        eligible_episodes=eligible,
        eligible_first_try=eligible_first_try,
        classes={name: _rate(_of(start, name), first_try) for name in dict.fromkeys(start.classes)},
        governed_scored=_rate(scored, first_try),
        before_split=_split(start, first_try, is_after=False),
        after_split=_split(start, first_try, is_after=True),
        hints=start.hints,
        tokens=_tokens(attempts),
        wire=_wire(attempts, asked),
        saving=_saving(start, attempts, first_try, drifts),
        started_at=start.started_at,
        version=start.version,
        spent=spent,
    )


def _tokens(attempts: Sequence[Attempted]) -> Tokens:
    return Tokens(
        sum(one.prompt_tokens for one in attempts),
        sum(one.completion_tokens for one in attempts),
        "vendor" if {one.token_source for one in attempts} == {"vendor"} else "estimated",
    )


def _wire(attempts: Sequence[Attempted], asked: Sequence[Asked]) -> Wire:
    return Wire(
        responses=sum(one.mended + 1 for one in attempts if one.status is not None),
        bytes=sum(one.response_bytes for one in attempts),
        contract_bytes=sum(one.contract_bytes for one in attempts),
        request_bytes=sum(one.request_bytes for one in attempts),
        contract_request_bytes=sum(one.contract_request_bytes for one in attempts),
        other_header_bytes=sum(one.other_header_bytes for one in attempts),
        questions=len(asked),
        question_bytes=sum(record.question_bytes for record in asked),
        question_whole_bytes=sum(record.whole_bytes for record in asked),
    )


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
    return not all(_is_true(entry, attempt.episode, drifts) for entry in entries)


def _served(model: Model | None, attempts: Sequence[Attempted]) -> Model | None:
    if model is None:
        return None
    served = dict.fromkeys(one.served for one in attempts if one.served is not None)
    return Model(model.requested, ", ".join(served) or None)


def _precision(evictions: Sequence[Evicted], drifts: Sequence[Drifted]) -> float | None:
    if not evictions:
        return None
    return sum(_is_right(eviction, drifts) for eviction in evictions) / len(evictions)


def _of(start: RunStarted, in_class: str) -> list[int]:
    return [index for index, name in enumerate(start.classes) if name == in_class]


def _rate(indexes: Iterable[int], first_try: set[int]) -> FirstTry:
    chosen = set(indexes)
    return FirstTry(len(chosen), len(chosen & first_try))


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


def _vector(entry: Shown, episode: int, drifts: Sequence[Drifted]) -> Sequence[str] | None:
    """The tables that the server would have named with a remembered fix in an episode; None if it would not have given that fix."""
    since = (drift for drift in drifts if entry.learned_in <= drift.after < episode)
    judged = [drift.judged[entry.id] for drift in since if entry.id in drift.judged]
    if not judged:
        return entry.tables
    return next((fix.tables for fix in judged[-1].fixes if fix.is_same(entry)), None)


def _is_true(entry: Shown, episode: int, drifts: Sequence[Drifted]) -> bool:
    """Whether the server would still have given a remembered fix in an episode."""
    return _vector(entry, episode, drifts) is not None


def _is_right(eviction: Evicted, drifts: Sequence[Drifted]) -> bool:
    """Whether an entry was rightly dropped: it was stale, or names a table that the server would name no more."""
    vector = _vector(eviction.entry, eviction.episode, drifts)
    return vector is None or bool({*eviction.entry.tables}.difference(vector))


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
    return built
