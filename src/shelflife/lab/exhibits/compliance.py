"""How often planners are right at once: by arm, by class of task, by shape of hint, and how sure that is."""

from collections.abc import Callable, Iterator, Sequence
from statistics import stdev

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    count,
    label,
    number,
    signed,
    written,
)
from shelflife.lab.exhibits.comparison import (
    PLANNER,
    default_note,
    notes,
    rows_beside_the_paper,
    with_default,
)
from shelflife.lab.exhibits.pools import Pool, Runs, Subject
from shelflife.lab.intervals import Interval, difference_interval, mean_interval, rate_interval
from shelflife.lab.scores import FirstTry, RunScore

__all__ = [
    "classes",
    "domains",
    "hint_shapes",
    "intervals",
    "ladder",
    "rotation_schedules",
    "rotations",
    "undrifted",
]

_STREAM = "drifted"
_LADDER_ARMS = ("A1", "A2", "A2D", "A2DC", "A2DG")


def _funding_post(run: RunScore) -> FirstTry | None:
    return run.after_split


def _percent(rate: FirstTry | None) -> float | None:
    return None if rate is None else rate.percent


def ladder(runs: Runs) -> Exhibit:
    """Compliance by arm, the precision of eviction, and what became of a class that never drifted."""
    stream = "drifted"
    arms = with_default(_LADDER_ARMS, runs, stream)
    funding_arms = with_default(("A1", "A2", "A2D"), runs, stream)

    def here(subject: Subject) -> list[Cell]:
        def pool(arm: str) -> Pool:
            return runs.pool(subject, stream, arm)

        kind = subject.kind
        a1, a2d = (_percent(pool(arm).compliance) for arm in ("A1", "A2D"))
        return [
            *(number(_percent(pool(arm).compliance), kind) for arm in arms),
            signed(None if a1 is None or a2d is None else a2d - a1, kind),
            *(number(pool(arm).mean(lambda run: run.eviction_precision), kind, 2) for arm in ("A2", "A2D")),
            Cell(pool("A2").completed or DASH, kind),
            *(number(pool(arm).percent(_funding_post), kind) for arm in funding_arms),
        ]

    def published(model: str) -> list[Cell] | None:
        known = paper.LADDER.facts.get(model)
        return known and [
            *(number(known.compliance.get(arm), Kind.PAPER) for arm in arms),
            signed(known.gain, Kind.PAPER),
            number(known.precision_at_a2, Kind.PAPER, 2),
            number(known.precision_at_a2d, Kind.PAPER, 2),
            Cell(DASH, Kind.PAPER),
            *(number(known.funding_post.get(arm), Kind.PAPER) for arm in funding_arms),
        ]

    return Exhibit(
        "ladder",
        "The ladder",
        "From left to right the client reacts more finely to what the server says; compliance should rise, and post-drift funding, which no"
        " event targets, should not fall on the way.",
        (
            PLANNER,
            *(Column(arm, "Compliance (%)") for arm in arms),
            Column("A2D\N{MINUS SIGN}A1", "Gain"),
            Column("A2", "Precision"),
            Column("A2D", "Precision"),
            Column("A2", "Completed"),
            *(Column(arm, "Post-drift funding (%)") for arm in funding_arms),
        ),
        rows_beside_the_paper(runs.subjects(stream), here, published),
        notes(
            paper.LADDER.where,
            "Compliance is the first-try rate over the governed episodes that are neither a first meeting nor a stale slot; rates are pooled over seeds.",
            "Precision is the share of evictions that were right, averaged over seeds; a run that gave up early evicts less, so the completed episodes stand beside it.",
            default_note(arms),
        ),
    )


def classes(runs: Runs) -> Exhibit:
    """First tries by class of task."""
    stream, arms = "drifted", ("A1", "A2D")
    of: dict[str, Callable[[RunScore], FirstTry | None]] = {
        "Add a field (%)": lambda run: run.governed_scored,
        "Conditional rewrite, post (%)": _funding_post,
        "Control (%)": lambda run: run.classes.get("control"),
        "No constraint (%)": lambda run: run.classes.get("free"),
    }

    def here(subject: Subject) -> list[Cell]:
        return [
            number(runs.pool(subject, stream, arm).percent(rate), subject.kind)
            for rate in of.values()
            for arm in arms
        ]

    def published(model: str) -> list[Cell] | None:
        known = paper.CLASSES.facts.get(model)
        return known and [number(by_arm.get(arm), Kind.PAPER) for by_arm in known for arm in arms]

    return Exhibit(
        "first-try-by-class",
        "First try by class",
        "Only the class whose table drifted should gain from A1 to A2D; the other three should stay where they are.",
        (PLANNER, *(Column(arm, name) for name in of for arm in arms)),
        rows_beside_the_paper(runs.subjects(stream), here, published),
        notes(
            paper.CLASSES.where,
            "Each run has ten governed episodes without the stale slots, three of funding after the benign bump, six of control and nine without a constraint.",
        ),
    )


def hint_shapes(runs: Runs) -> Exhibit:
    """First tries by what the server's fix does to a request."""
    of: tuple[tuple[str, Callable[[RunScore], FirstTry | None]], ...] = (
        ("drifted", lambda run: run.governed_scored),
        ("recipes", lambda run: run.classes.get("celiac")),
        ("recipes", lambda run: run.classes.get("incompatible")),
        ("drifted", lambda run: run.before_split),
        ("drifted", _funding_post),
    )

    def here(subject: Subject) -> list[Cell]:
        return [number(runs.pool(subject, stream, "A2D").percent(rate), subject.kind) for stream, rate in of]

    def published(model: str) -> list[Cell] | None:
        known = paper.HINT_SHAPES.facts.get(model)
        return known and [number(value, Kind.PAPER) for value in known]

    return Exhibit(
        "hint-shapes",
        "The shape of the hint",
        "At A2D, how often a planner is right at once when the fix adds a field, replaces a value, or replaces one under a condition.",
        (
            PLANNER,
            Column("promo", "Add a field (%)"),
            Column("celiac", "Rewrite a value (%)"),
            Column("incompatible", "Rewrite a value (%)"),
            Column("pre", "Conditional rewrite (%)"),
            Column("post", "Conditional rewrite (%)"),
        ),
        rows_beside_the_paper(runs.subjects("drifted", "recipes"), here, published),
        notes(
            paper.HINT_SHAPES.where,
            "First meetings are counted here, so even a planner that applies everything stays below 100 %; promo leaves out the stale slots.",
        ),
    )


def domains(runs: Runs) -> Exhibit:
    """The class that drift targets, in both domains."""
    arms = ("A1", "A2D")
    of: tuple[tuple[str, Callable[[RunScore], FirstTry | None]], ...] = (
        ("drifted", lambda run: run.governed_scored),
        ("recipes", lambda run: run.classes.get("celiac")),
    )

    def here(subject: Subject) -> list[Cell]:
        cells: list[Cell] = []
        for stream, rate in of:
            ends = [runs.pool(subject, stream, arm).percent(rate) for arm in arms]
            cells += _rise(*ends, kind=subject.kind)
        return cells

    def published(model: str) -> list[Cell] | None:
        gain, shapes = paper.DOMAIN_GAINS.facts.get(model), paper.HINT_SHAPES.facts.get(model)
        if gain is None or shapes is None:
            return None
        payments, celiac = paper.CLASSES.facts[model].governed, shapes.rewrite_celiac
        return [
            *_rise(payments["A1"], payments["A2D"], kind=Kind.PAPER),
            *_rise(celiac - gain, celiac, kind=Kind.PAPER),
        ]

    return Exhibit(
        "domains",
        "Payments and recipes",
        "First tries in the class whose table is rotated: the gain from A1 to A2D should be there in both domains.",
        (
            PLANNER,
            *(
                Column(name, group)
                for group in ("Payments, governed (%)", "Recipes, celiac (%)")
                for name in (*arms, "gain")
            ),
        ),
        rows_beside_the_paper(runs.subjects(*(stream for stream, _ in of)), here, published),
        notes(
            f"{paper.DOMAIN_GAINS.where}; {paper.HINT_SHAPES.where}",
            "In recipes the safe brands of two ingredients of three are rotated after episode 11, so 12 of 20 celiac episodes can be stale: a gain as large as the paper's needs that many.",
            "The paper gives the gains in recipes and the rates at A2D; those at A1 are the difference. First meetings are counted, and in recipes the stale slots too.",
        ),
    )


def _rise(a1: float | None, a2d: float | None, *, kind: Kind) -> list[Cell]:
    gain = None if a1 is None or a2d is None else a2d - a1
    return [number(a1, kind), number(a2d, kind), signed(gain, kind)]


def undrifted(runs: Runs) -> Exhibit:
    """Compliance where nothing drifts."""
    stream = "undrifted"
    played = runs.arms(stream)
    arms = [arm for arm in played if arm != "A0"]

    def here(subject: Subject) -> list[Cell]:
        pools = {arm: runs.pool(subject, stream, arm) for arm in played}
        return [
            *(number(_percent(pools[arm].compliance), subject.kind) for arm in arms),
            *(count(pools[arm].mean(lambda run: run.retries), subject.kind) for arm in played),
        ]

    def published(model: str) -> list[Cell] | None:
        known = paper.UNDRIFTED.facts.get(model)
        missing = [Cell(DASH, Kind.PAPER)] * len(played)
        return [*(number(known.get(arm), Kind.PAPER) for arm in arms), *missing] if known else None

    return Exhibit(
        "undrifted",
        "When nothing drifts",
        "With nothing to invalidate all arms should comply alike; what one loses here it loses for no reason of the data's.",
        (
            PLANNER,
            *(Column(arm, "Compliance (%)") for arm in arms),
            *(Column(arm, "Retries per stream") for arm in played),
        ),
        rows_beside_the_paper(runs.subjects(stream), here, published),
        notes(
            paper.UNDRIFTED.where,
            "The arms differ in what they do when something moves, and here nothing does. A difference between them is chance, or the planner's own.",
        ),
    )


def rotations(runs: Runs) -> Exhibit:
    """Compliance by how often a table is rotated within the same episodes."""
    streams = runs.rotation_streams()
    arms = ("A1", "A2D")
    counts = {name: name.rpartition("-")[2] for name in streams}

    def here(subject: Subject) -> list[Cell]:
        return [
            *(
                number(_percent(runs.pool(subject, stream, arm).compliance), subject.kind)
                for arm in arms
                for stream in streams
            ),
            *(
                count(runs.pool(subject, stream, "A2D").mean(lambda run: run.retries), subject.kind)
                for stream in streams
            ),
        ]

    def published(model: str) -> list[Cell] | None:
        known = paper.ROTATIONS.facts.get(model)
        return known and [
            *[Cell(DASH, Kind.PAPER)] * (len(arms) * len(streams)),
            *[Cell(f"near {written(known.retries_near, 0)}", Kind.PAPER)] * len(streams),
        ]

    return Exhibit(
        "rotations",
        "More drift in the same episodes",
        "One, two and three rotations packed into 36 episodes: at A2D compliance should hold, and a rotation should cost about one retry.",
        (
            PLANNER,
            *(Column(counts[name], f"Compliance at {arm} (%)") for arm in arms for name in streams),
            *(Column(counts[name], "Retries at A2D") for name in streams),
        ),
        rows_beside_the_paper(runs.subjects(*streams) if streams else [], here, published),
        notes(
            paper.ROTATIONS.where,
            *(
                f"{model} in the paper: {_span(known.compliance['A1'])} % at A1, {_span(known.compliance['A2D'])} % at A2D;"
                f" retries at A2D stay near {written(known.retries_near, 0)} at every number of rotations."
                for model, known in paper.ROTATIONS.facts.items()
            ),
            *_retries_that_grow(runs, streams),
        ),
    )


def _retries_that_grow(runs: Runs, streams: Sequence[str]) -> Iterator[str]:
    """Where exact planners differ from the paper's claim that rotations cost nothing, by its model that complies always."""
    near = written(paper.ROTATIONS.facts["claude-haiku-4-5"].retries_near, 0)
    for subject in runs.subjects(*streams) if streams else ():
        pools = [runs.pool(subject, stream, "A2D") for stream in streams]
        counts = [mean for pool in pools if (mean := pool.mean(lambda run: run.retries)) is not None]
        if subject.kind is Kind.EXACT and len(set(counts)) > 1:
            listed = ", ".join(written(count, 0) for count in counts)
            yield (
                f"This differs from the paper's near {near}: {subject.name} needs {listed} retries, for the first attempt after each rotation"
                " still shows what has just gone stale."
            )


def rotation_schedules(runs: Runs) -> Exhibit:
    """Episode by episode, why more rotations do not always widen the gap."""
    streams = [name for name in runs.streams() if name.startswith("rotations-")]
    rows: list[Row] = []
    for subject in (one for one in runs.subjects(*streams) if one.kind is Kind.EXACT) if streams else ():
        played = {name: [runs.pool(subject, name, arm) for arm in ("A1", "A2D")] for name in streams}
        rows += (
            Row(tuple(_of_schedule(subject, name, *pools)), subject.kind, index == 0)
            for index, (name, pools) in enumerate(played.items())
            if all(pool.runs for pool in pools) and pools[0].runs[0].drifted_after
        )
    return Exhibit(
        "rotation-schedules",
        "Why the gap stops widening",
        "The eligible episodes, over which compliance is measured, on either side of the first rotation: at A1 a planner that takes the"
        " first of two values is right in those before it, and in no other.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Rotated after", align="left"),
            Column("before the first", "Eligible episodes", align="left"),
            Column("since", "Eligible episodes", align="left"),
            Column("Right at A1", align="left"),
            Column("A1", "Compliance (%)"),
            Column("A2D", "Compliance (%)"),
            Column("A2D\N{MINUS SIGN}A1", "Gap"),
        ),
        tuple(rows),
        notes(
            paper.ROTATIONS.where,
            "A rotation takes two stale slots out of the eligible episodes. Where they lie after the first rotation, at A1 only failures are taken out: so compliance at A1 rises with"
            " the third rotation, and the gap shrinks. That is the paper's plateau. It says nothing of how either arm bears drift.",
            "With the same three rotations three episodes earlier (rotations-3-early), one of the episodes before the first rotation goes too, and the gap widens with each rotation.",
            "A planner that takes the last of two values is right at A1 as soon as it has learned the new one, so it has no gap however often a table is rotated.",
        ),
    )


def _of_schedule(subject: Subject, stream: str, at_a1: Pool, at_a2d: Pool) -> Iterator[Cell]:
    naive = at_a1.runs[0]
    eligible, first = naive.eligible_episodes, naive.drifted_after[0]
    right = [index for index in eligible if index in naive.first_try_episodes]
    a1, a2d = (_percent(pool.compliance) or 0.0 for pool in (at_a1, at_a2d))
    yield from (label(stream, is_code=True), label(subject.name, is_code=True))
    for episodes in (
        naive.drifted_after,
        [index for index in eligible if index <= first],
        [index for index in eligible if index > first],
        right,
    ):
        yield label(", ".join(map(str, episodes)))
    yield from (number(a1, subject.kind), number(a2d, subject.kind), signed(a2d - a1, subject.kind))


def _span(ends: tuple[float, float]) -> str:
    return " to ".join(dict.fromkeys(written(end, 1) for end in ends))


def intervals(runs: Runs) -> Exhibit:
    """How far compliance, its gain and the retries may be off."""
    arms = ("A1", "A2D")

    def here(subject: Subject) -> list[Cell]:
        kind = subject.kind
        pools = [runs.pool(subject, _STREAM, arm) for arm in arms]
        a1, a2d = (pool.compliance for pool in pools)
        by_seed = [run.compliance for run in pools[1].runs if run.compliance is not None]
        retries = [run.retries for run in pools[1].runs]
        cells: list[Cell] = []
        for rate in (a1, a2d):
            cells.append(number(None if rate is None else rate.percent, kind))
            cells.append(_between(None if rate is None else rate_interval(rate), kind))
        gain, gain_interval = None, None
        if a1 is not None and a2d is not None:
            gain = (a2d.percent or 0.0) - (a1.percent or 0.0)
            gain_interval = difference_interval(a2d, a1)
        return [
            *cells,
            signed(gain, kind),
            _between(gain_interval, kind),
            number(stdev(by_seed) if len(by_seed) > 1 else None, kind),
            count(pools[1].mean(lambda run: run.retries), kind),
            _between(mean_interval(retries), kind),
            Cell(str(len(retries)) if retries else DASH, kind),
        ]

    by_chance = [subject for subject in runs.subjects(_STREAM) if subject.kind is not Kind.EXACT]
    return Exhibit(
        "intervals",
        "How sure the rates are",
        "With a confidence of 95 % the value lies between the two ends: where two intervals lie apart, the arms differ by more than chance.",
        (
            PLANNER,
            Column("rate", "Compliance at A1 (%)"),
            Column("interval", "Compliance at A1 (%)"),
            Column("rate", "Compliance at A2D (%)"),
            Column("interval", "Compliance at A2D (%)"),
            Column("points", "Gain, A2D\N{MINUS SIGN}A1"),
            Column("interval", "Gain, A2D\N{MINUS SIGN}A1"),
            Column("at A2D", "SD over seeds"),
            Column("mean", "Retries at A2D"),
            Column("interval", "Retries at A2D"),
            Column("n", "Seeds"),
        ),
        rows_beside_the_paper(by_chance, here, lambda model: None),
        (
            "Rates: Wilson's interval over the pooled episodes, which stays honest at 0 and 100 %, where an interval over three equal seeds would have no width;"
            " it takes episodes for independent, so the spread over seeds stands beside it.",
            "Gain: Newcombe's interval from the two. Retries: Student's t over seeds, and a dash where all seeds came to the same, for it would have no width.",
            "Deterministic planners are not here, for there is no chance in them. The paper gives one bound: no standard deviation over seeds above 18.1 points.",
        ),
    )


def _between(interval: Interval | None, kind: Kind) -> Cell:
    text = DASH if interval is None else " to ".join(written(end, 1) for end in interval)
    return Cell(text, kind)
