"""The numbers that the paper published, as data, each with where it stands.

M. Wu and A. Canedo, *Invalidation Contracts for Cross-Episode Agent Memory*. What the paper does not give is not here.
"""

from typing import Generic, NamedTuple, TypeVar

__all__ = [
    "CLASSES",
    "COVERAGE",
    "DOMAIN_GAINS",
    "EXTENT",
    "FUNDING_WITHOUT_MEMORY",
    "GOVERNED_WITHOUT_MEMORY",
    "HINT_SHAPES",
    "LADDER",
    "LEVEL_2_LIFT",
    "PRECISION_BY_TABLE",
    "PRICE_SHEET",
    "PRICE_SHEET_ATTEMPTS",
    "PRICE_SHEET_EPISODES",
    "PROBES",
    "RESTAMPS",
    "RESTAMPS_IN_THE_SETUP",
    "ROTATIONS",
    "SPLIT_FIELDS",
    "TOKENS",
    "UNCOMPLETED",
    "UNDRIFTED",
    "UNTOUCHED",
    "WIRE",
    "WIRE_FIELDS",
    "Classes",
    "Coverage",
    "DetectionPolicy",
    "Extent",
    "HintShapes",
    "Ladder",
    "Published",
    "Rotations",
    "TokensAndRetries",
    "Uncompleted",
    "Untouched",
    "WireCost",
    "WireFields",
    "counterpart_of",
]

Facts = TypeVar("Facts")


class Published(NamedTuple, Generic[Facts]):
    """Facts, and the table, figure or section of the paper that has them."""

    where: str
    facts: Facts


class Ladder(NamedTuple):
    """A model on the drifted stream; all but the precision in percent or points."""

    compliance: dict[str, float]
    gain: float
    """Of A2D over A1."""

    precision_at_a2: float
    funding_post: dict[str, float]
    precision_at_a2d: float = 1.0


class Classes(NamedTuple):
    """First-try rates in percent by class of task, each by arm."""

    governed: dict[str, float]
    funding_post: dict[str, float]
    control: dict[str, float]
    free: dict[str, float]


class DetectionPolicy(NamedTuple):
    """A detection policy on the rule stream, the same on three models but for its tokens."""

    name: str
    first_try: int
    retries: int
    evictions: tuple[int, ...]
    """By event, where the paper splits them."""

    restamps: int
    alerts: tuple[int, ...]
    token_percent: tuple[float, float] | None
    """The least and the most that it takes more than the lazy policy; None for that one."""


class TokensAndRetries(NamedTuple):
    """What a model costs on the drifted stream, each by arm."""

    saving: dict[str, float]
    """Of tokens, in percent of its own A0."""

    gain: float
    """Of A2D over A1, in points."""

    retries: dict[str, float]


class HintShapes(NamedTuple):
    """First-try rates in percent at A2D by what the server's fix does to a request."""

    add: float
    rewrite_celiac: float
    rewrite_incompatible: float
    conditional_pre: float
    conditional_post: float


class Rotations(NamedTuple):
    """A model over one, two and three rotations: the text gives no value for each."""

    compliance: dict[str, tuple[float, float]]
    """The least and the most, in percent by arm."""

    retries_near: float
    """At A2D the retries are said to stay near this at every number of rotations."""


class Coverage(NamedTuple):
    """What an arm draws on. Bundled are levels that it has only together with another."""

    active: frozenset[str]
    bundled: frozenset[str] = frozenset()


class Extent(NamedTuple):
    """How much was run."""

    runs: int
    episodes: int
    models: int
    uncompleted: int


class WireCost(NamedTuple):
    """The Level 1 fields on the wire."""

    responses: int
    mean_bytes: int
    mean_contract_bytes: int
    contract_percent: float


class WireFields(NamedTuple):
    """The same field by field, over the same responses. Shares are of all bytes sent."""

    carrying: int
    """The responses that carry contract fields."""

    mean_of_carrying: int
    most: int
    versions_percent: float
    versions_bytes: int
    suggestion_percent: float
    """Of the two fields of a suggestion together."""

    hint_bytes: int
    table_bytes: int


class Untouched(NamedTuple):
    """The classes of the drifted stream that no event touches, over all its runs."""

    runs: int
    free: int
    """Episodes without a constraint, every one of which is right at once."""

    models: int
    control: float
    """First tries on the control class in percent, with every memory arm, on all models but one."""

    other_than_that: str
    zero_at_a0: int
    """The models that are never right at once on the control class without a memory."""


class Uncompleted(NamedTuple):
    """Episodes that a model gave up, over all that it played."""

    all: int
    by_arm: dict[str, float]
    by_class: dict[str, float]


def _by_arm(names: str, *numbers: float) -> dict[str, float]:
    return dict(zip(names.split(), numbers, strict=True))


_REMEMBERING = "A1 A2 A2D A2DC A2DG"
_SHARED = "A1 A2 A2D"

LADDER = Published(
    "Table tab:ladder, Results",
    {
        "claude-haiku-4-5": Ladder(
            _by_arm(_REMEMBERING, 44.4, 100.0, 100.0, 100.0, 100.0),
            55.6,
            0.25,
            _by_arm(_SHARED, 66.7, 0.0, 66.7),
        ),
        "claude-sonnet-4-6": Ladder(
            _by_arm(_REMEMBERING, 25.9, 81.5, 88.9, 81.5, 88.9), 63.0, 0.25, _by_arm(_SHARED, 66.7, 0.0, 66.7)
        ),
        "claude-sonnet-5": Ladder(
            _by_arm(_REMEMBERING, 0.0, 3.7, 11.1, 0.0, 3.7), 11.1, 0.25, _by_arm(_SHARED, 66.7, 0.0, 66.7)
        ),
        "gpt-5.4-mini": Ladder(
            _by_arm(_REMEMBERING, 100.0, 100.0, 100.0, 100.0, 100.0),
            0.0,
            0.25,
            _by_arm(_SHARED, 66.7, 22.2, 66.7),
        ),
        "deepseek-v4-flash": Ladder(
            _by_arm(_REMEMBERING, 3.7, 7.4, 3.7, 18.5, 0.0), 0.0, 0.31, _by_arm(_SHARED, 66.7, 66.7, 55.6)
        ),
        "gpt-5-mini": Ladder(
            _by_arm(_SHARED, 33.3, 100.0, 100.0), 66.7, 0.25, _by_arm(_SHARED, 66.7, 0.0, 66.7)
        ),
        "gemini-3.5-flash": Ladder(
            _by_arm(_SHARED, 29.6, 63.0, 77.8), 48.2, 1.00, _by_arm(_SHARED, 0.0, 0.0, 11.1)
        ),
    },
)


def _classes(*numbers: float) -> Classes:
    governed, funding, control = (_by_arm("A1 A2D", *numbers[i : i + 2]) for i in (0, 2, 4))
    return Classes(governed, funding, control, _by_arm("A1 A2D", 100.0, 100.0))


CLASSES = Published(
    "Table tab:classes, Results",
    {
        "claude-haiku-4-5": _classes(40.0, 90.0, 66.7, 66.7, 83.3, 83.3),
        "claude-sonnet-4-6": _classes(23.3, 80.0, 66.7, 66.7, 83.3, 83.3),
        "claude-sonnet-5": _classes(0.0, 10.0, 66.7, 66.7, 83.3, 83.3),
        "gpt-5.4-mini": _classes(90.0, 90.0, 66.7, 66.7, 83.3, 83.3),
        "deepseek-v4-flash": _classes(3.3, 3.3, 66.7, 55.6, 83.3, 83.3),
        "gpt-5-mini": _classes(30.0, 90.0, 66.7, 66.7, 83.3, 83.3),
        "gemini-3.5-flash": _classes(26.7, 70.0, 0.0, 11.1, 44.4, 55.6),
    },
)

PRICE_SHEET = Published(
    "Table tab:pricesheet, Results",
    {
        "A2DC": DetectionPolicy("lazy", 28, 8, (2,), 3, (13, 25), None),
        "A2DR": DetectionPolicy("stamp only", 22, 14, (4, 5), 0, (12, 24), (14.0, 14.3)),
        "A2DRC": DetectionPolicy("stamp and vectors", 28, 8, (2,), 3, (12, 24), (-0.11, 0.20)),
        "A2DO": DetectionPolicy("oracle", 27, 9, (3,), 3, (12, 24), (2.42, 2.45)),
    },
)

PRICE_SHEET_ATTEMPTS = Published("Results, drift rate, domain and serving path", {"A2D": 42})
"""Attempts on the rule stream, for the arm that the price sheet leaves out."""

PRICE_SHEET_EPISODES = 36
"""Of the rule stream."""


def _costs(a1: float, a2d: float, gain: float, *retries: float) -> TokensAndRetries:
    return TokensAndRetries(_by_arm("A1 A2D", a1, a2d), gain, _by_arm("A0 A1 A2D", *retries))


TOKENS = Published(
    "Table tab:tokens, Results",
    {
        "claude-haiku-4-5": _costs(22.3, 32.5, 10.2, 27.0, 13.0, 7.0),
        "claude-sonnet-4-6": _costs(18.6, 29.2, 10.6, 27.0, 14.7, 8.3),
        "claude-sonnet-5": _costs(5.3, 8.7, 3.4, 32.3, 27.7, 25.3),
        "gpt-5.4-mini": _costs(28.2, 31.0, 2.9, 24.0, 7.0, 7.0),
        "deepseek-v4-flash": _costs(7.1, 6.0, -1.0, 20.0, 16.0, 16.7),
        "gpt-5-mini": _costs(16.4, 32.1, 15.7, 27.0, 14.0, 7.0),
        "gemini-3.5-flash": _costs(10.3, 22.5, 12.2, 82.7, 68.3, 55.0),
    },
)

HINT_SHAPES = Published(
    "Table tab:taxonomy, Results",
    {
        "claude-haiku-4-5": HintShapes(90.0, 75.0, 58.3, 50.0, 66.7),
        "claude-sonnet-4-6": HintShapes(80.0, 30.0, 38.3, 50.0, 66.7),
        "claude-sonnet-5": HintShapes(10.0, 55.0, 60.0, 50.0, 66.7),
    },
)

_IN_EVERY_ARM = frozenset({"L2", "L3"})

COVERAGE = Published(
    "Table tab:arm-levels, Two Ladders",
    {
        "A1": Coverage(_IN_EVERY_ARM),
        "A2": Coverage(_IN_EVERY_ARM | {"L1"}),
        "A2D": Coverage(_IN_EVERY_ARM | {"L1", "Diff"}),
        "A2DC": Coverage(_IN_EVERY_ARM | {"L1", "Diff"}),
        "A2DG": Coverage(_IN_EVERY_ARM | {"L1", "L5", "Diff"}, frozenset({"L4"})),
        "A2DO": Coverage(_IN_EVERY_ARM | {"L1", "L6", "Diff"}),
    },
)

UNDRIFTED = Published(
    "Results, what governance costs when nothing drifts",
    {"claude-sonnet-4-6": _by_arm("A1 A2 A2D A2DG", 100.0, 54.5, 81.8, 90.9)},
)
"""Compliance on the undrifted stream."""

ROTATIONS = Published(
    "Figure fig:frequency and the text beside it",
    {
        "claude-haiku-4-5": Rotations({"A1": (47.6, 60.0), "A2D": (100.0, 100.0)}, 7.0),
        "claude-sonnet-4-6": Rotations({"A1": (28.6, 55.6), "A2D": (73.3, 90.5)}, 9.0),
    },
)

DOMAIN_GAINS = Published(
    "Figure fig:domain and the text beside it",
    _by_arm("claude-haiku-4-5 claude-sonnet-5 claude-sonnet-4-6", 48.3, 35.0, 15.0),
)
"""Points that the class which drift targets gains in recipes, A2D over A1."""

GOVERNED_WITHOUT_MEMORY = Published(
    "The A0 zero floor",
    _by_arm("claude-haiku-4-5 claude-sonnet-4-6 claude-sonnet-5", 0.0, 0.0, 0.0),
)
"""First-try on the governed class at A0."""

FUNDING_WITHOUT_MEMORY = Published(
    "The A0 zero floor, and Results on table-level invalidation",
    _by_arm(
        "claude-haiku-4-5 claude-sonnet-4-6 claude-sonnet-5 deepseek-v4-flash gemini-3.5-flash",
        0.0,
        0.0,
        0.0,
        44.4,
        0.0,
    ),
)
"""First-try on funding after the benign bump at A0."""

WIRE = Published("Design Decisions", WireCost(3387, 817, 123, 15.1))

WIRE_FIELDS = Published("Design Decisions", WireFields(2419, 173, 251, 11.7, 190, 3.2, 24, 28))

EXTENT = Published("Results", Extent(250, 9432, 7, 159))

PROBES = Published("Experimental Setup", 238)
"""Archived runs, in all of which the model that was served is the one that was asked for."""

UNTOUCHED = Published(
    "Results, the untargeted classes do not move", Untouched(114, 1026, 7, 83.3, "gemini-3.5-flash", 5)
)

_NEVER = Uncompleted(0, {}, {})
UNCOMPLETED = Published(
    "Results, compliance tracks the client",
    {
        **dict.fromkeys(
            ("claude-haiku-4-5", "claude-sonnet-4-6", "gpt-5.4-mini", "deepseek-v4-flash", "gpt-5-mini"),
            _NEVER,
        ),
        "claude-sonnet-5": Uncompleted(23, {"A0": 1}, _by_arm("governed funding control", 23, 0, 0)),
        "gemini-3.5-flash": Uncompleted(
            136, _by_arm("A0 A1 A2 A2D", 41, 34, 32, 29), _by_arm("governed funding control", 0, 104, 32)
        ),
    },
)

RESTAMPS = Published(
    "Measurement Hygiene",
    {
        **dict.fromkeys(LADDER.facts, (3, 3, 3)),
        "gemini-3.5-flash": (0, 0, 1),
    },
)
"""At A2D on the drifted stream, by seed: the reference of the text, and the one model that is said to differ from it."""

RESTAMPS_IN_THE_SETUP = Published("Experimental Setup", 1)
"""What the same paper's set-up calls correct for the same event."""

PRECISION_BY_TABLE = Published("Measurement Hygiene", {"A2": 1.0})
"""What precision at A2 would be if a rotation were taken to warrant a cleared table."""

LEVEL_2_LIFT = Published("Two Ladders, in a footnote", 56.0)
"""Points of compliance that the merge sentence brought to two Claude models, in runs that are not archived."""

_COUNTERPARTS = {"compliant": "gpt-5-mini", "compliant-last": "gpt-5.4-mini"}


def counterpart_of(planner: str, tuned_to: str | None = None, served: str | None = None) -> str | None:
    """The model of the paper's whose numbers belong beside a planner's.

    - Of a planner that is tuned, the model that it is tuned to.
    - Of a model, itself: by the name it was asked for, or by the one that was served.
    - Of two values `compliant` takes the first, as gpt-5-mini does, and `compliant-last` the last, as gpt-5.4-mini does.
    """
    if planner in _COUNTERPARTS:
        return _COUNTERPARTS[planner]
    names = (tuned_to, planner.rpartition("/")[2], served)
    return next((name for name in names if name in LADDER.facts), None)


SPLIT_FIELDS = ("funding_pre", "funding_post")
"""What the two parts of a class that is counted apart are called in `--json`, for the class that the paper splits."""
