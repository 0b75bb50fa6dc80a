"""Runs that belong together."""

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from shelflife.client import EXACT
from shelflife.lab.arms import ARMS
from shelflife.lab.exhibits.cells import Kind, kind_of
from shelflife.lab.paper import LADDER, counterpart_of
from shelflife.lab.scores import FirstTry, RunScore
from shelflife.lab.spec import PLAIN, PLAIN_CONSUME, PLAIN_LEVEL, PLAIN_WORDING, Consume

__all__ = ["ALL_ARMS", "Pool", "Runs", "Subject", "counterpart", "groups", "saved_percent"]

ALL_ARMS = (*ARMS, EXACT.name)

_FIRST = (Kind.MEASURED, Kind.EXACT, Kind.TUNED, Kind.SIMULATED)


class Subject(NamedTuple):
    """Who played, and how: what is compared with what never mixes two of these."""

    planner: str
    kind: Kind
    consume: Consume
    level: int
    counterpart: str | None
    """The paper's model whose numbers belong beside."""

    wording: str = PLAIN_WORDING

    @property
    def is_as_in_the_paper(self) -> bool:
        return (self.consume, self.level, self.wording) == (PLAIN_CONSUME, PLAIN_LEVEL, PLAIN_WORDING)

    @property
    def name(self) -> str:
        """The planner, and what is not as in the paper."""
        parts = [self.planner]
        if self.consume != PLAIN_CONSUME:
            parts.append(f"consume {self.consume}")
        if self.level != PLAIN_LEVEL:
            parts.append(f"level {self.level}")
        if self.wording != PLAIN_WORDING:
            parts.append(f"wording {self.wording}")
        return ", ".join(parts)

    @property
    def rank(self) -> tuple[int, int, str, bool, str, int, str]:
        """Where it stands in an exhibit."""
        models = list(LADDER.facts)
        place = models.index(self.counterpart) if self.counterpart in models else len(models)
        if self.kind is Kind.EXACT:
            place = 0
        is_other = not self.is_as_in_the_paper
        played = (self.planner, is_other, self.consume, self.level, self.wording)
        return (_FIRST.index(self.kind), place, *played)


class Pool(NamedTuple):
    """The runs of one subject on one stream with one arm, or of none: then everything is None."""

    runs: tuple[RunScore, ...]

    def rate(self, of: Callable[[RunScore], FirstTry | None]) -> FirstTry | None:
        """Over the episodes of all runs."""
        found = [one for run in self.runs if (one := of(run)) is not None and one.episodes]
        if not found:
            return None
        return FirstTry(sum(one.episodes for one in found), sum(one.first_try for one in found))

    def percent(self, of: Callable[[RunScore], FirstTry | None]) -> float | None:
        """The same in percent."""
        pooled = self.rate(of)
        return None if pooled is None else pooled.percent

    def mean(self, of: Callable[[RunScore], float | None]) -> float | None:
        """Over the runs that have it."""
        found = [value for run in self.runs if (value := of(run)) is not None]
        return fmean(found) if found else None

    @property
    def compliance(self) -> FirstTry | None:
        """First tries among the eligible episodes; None without a memory."""
        return self.rate(_compliance)

    @property
    def completed(self) -> str | None:
        """Episodes that were completed, of all."""
        if not self.runs:
            return None
        return f"{sum(run.completed for run in self.runs):,}/{sum(run.episodes for run in self.runs):,}"


def _compliance(run: RunScore) -> FirstTry | None:
    return None if run.compliance is None else FirstTry(run.eligible, run.eligible_first_try)


class Runs:
    """All runs of an exhibit; those of the paper's conduct on honest servers, and no others, by subject, stream and arm."""

    def __init__(self, scores: Iterable[RunScore]) -> None:
        self.all = list(scores)
        """Of whatever conduct, and on whatever server."""

        self.on_honest_servers = [score for score in self.all if score.hostile is None]
        self.of_the_papers_conduct = [
            score for score in self.on_honest_servers if score.spec.conduct == PLAIN
        ]
        self._pools: dict[tuple[Subject, str, str], list[RunScore]] = {}
        for score in self.of_the_papers_conduct:
            self._pools.setdefault((_subject_of(score), score.spec.stream, score.spec.arm), []).append(score)

    def subjects(self, *streams: str) -> list[Subject]:
        """Who played one of these streams, or any, in the order of exhibits."""
        found = {subject for subject, stream, _ in self._pools if not streams or stream in streams}
        return sorted(found, key=lambda subject: subject.rank)

    def streams(self) -> list[str]:
        """What was played."""
        return sorted({stream for _, stream, _ in self._pools})

    def rotation_streams(self) -> list[str]:
        """Those that differ only in how often a table is rotated."""
        return [stream for stream in self.streams() if re.fullmatch(r"rotations-\d+", stream)]

    def organic_streams(self) -> list[str]:
        """Those whose drift is the real releases of something."""
        return sorted({run.spec.stream for run in self.of_the_papers_conduct if run.history})

    def pool(self, subject: Subject, stream: str, arm: str) -> Pool:
        """The runs that belong together."""
        return Pool(tuple(self._pools.get((subject, stream, arm), ())))

    def of(self, subject: Subject) -> list[RunScore]:
        """All runs of a subject."""
        return [run for (who, _, _), runs in self._pools.items() if who == subject for run in runs]

    def arms(self, *streams: str) -> list[str]:
        """The arms with which one of these streams was played, in the order of the ladder."""
        found = {arm for _, stream, arm in self._pools if stream in streams}
        return [arm for arm in ALL_ARMS if arm in found]


def counterpart(run: RunScore) -> str | None:
    """The paper's model whose numbers belong beside a run's."""
    return counterpart_of(run.spec.planner, run.tuned_to, run.model.served if run.model else None)


def _subject_of(run: RunScore) -> Subject:
    spec = run.spec
    subject = Subject(spec.planner, kind_of(run), spec.consume, spec.level, None, spec.wording)
    return subject._replace(counterpart=counterpart(run)) if subject.is_as_in_the_paper else subject


def saved_percent(of: Pool, against: Pool) -> float | None:
    """The tokens that one pool saves of another's, over the seeds that both have."""
    seeds = {run.spec.seed for run in of.runs} & {run.spec.seed for run in against.runs}
    spent, baseline = (
        sum(run.tokens.total for run in pool.runs if run.spec.seed in seeds) for pool in (of, against)
    )
    return 100 * (1 - spent / baseline) if baseline else None


def groups(subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Planners of one kind together, but exact ones each alone: they differ by construction, not by chance."""
    groups: dict[object, list[Subject]] = {}
    for subject in subjects:
        settings = (subject.consume, subject.level, subject.wording)
        key = subject if subject.kind is Kind.EXACT else (subject.kind, *settings)
        groups.setdefault(key, []).append(subject)
    return list(groups.values())
