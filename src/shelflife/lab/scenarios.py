"""Streams as data: what the episodes are, in which order they come, and what drifts between them."""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from shelflife.contract import Rule
from shelflife.errors import ShelflifeError
from shelflife.lab.drawn_habits import Habits, drawn_by
from shelflife.lab.misfits import sentence_of
from shelflife.lab.organic.drawing import Organic, drawn_from
from shelflife.lab.organic.releases import ReleasesError
from shelflife.lab.toml_lines import TomlLines

__all__ = [
    "BEFORE_THE_FIRST",
    "Drift",
    "Episode",
    "Family",
    "Hostile",
    "Scenario",
    "ScenarioError",
    "Split",
    "load",
    "parse",
    "shipped",
]

HintShape = Literal["add a field", "rewrite a value", "conditional rewrite"]

Hostile = Literal["injects", "bumps", "pins", "lies", "tells"]
"""What somebody does to the agents of a stream: see `lab.hostile`."""

BEFORE_THE_FIRST = -1
"""The index after which a drift comes before any episode."""

_DRAWN: dict[str, tuple[str, type[Any], Callable[[Any], dict[str, Any]]]] = {
    "organic": ("from the releases", Organic, drawn_from),
    "habits": ("by the habits", Habits, drawn_by),
}
"""The sections of a manifest by which all else is drawn."""

_BY_NAME = resources.files("shelflife.lab") / "streams"


class ScenarioError(ShelflifeError):
    """A manifest is wrong: one sentence a problem, each with the line where that is known."""

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__(name, problems)
        self.name = name
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(f"{self.name}: {problem}" for problem in self.problems)


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks of one kind, all of which meet the same constraint."""

    name: str = ""
    """What the stream calls it: the key of its table, never a field in it."""

    in_class: str = msgspec.field(name="class")
    """The class as which its episodes are counted."""

    task: str
    """What is asked of the planner, in words; `{plan}` stands for a field of the input."""

    input: dict[str, Any]
    """The request as the task has it."""

    hint: HintShape | None = None
    """What the server's fix does to the request; None where there is no constraint."""

    field: str | None = None
    """The field that the fix sets."""


class Drift(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that happens to the server's data after an episode: to a table, or to the rules."""

    after: int
    """The index of the episode; -1 is before the first."""

    says: str = ""
    """What it is, in a few words for people."""

    table: str | None = None
    rows: dict[str, Any] | None = None
    """The whole new content of the table."""

    set: dict[str, Any] | None = None
    """Rows to set."""

    remove: list[str] = []
    """Keys to remove."""

    version: str | None = None
    """The new version; minted where it is not given."""

    add_rules: list[Rule] = []
    remove_rules: list[Rule] = []


class Split(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A class that is counted apart before and after an episode."""

    in_class: str = msgspec.field(name="class")
    after: int
    """The index of the last episode that counts as before."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a stream."""

    index: int
    family: Family
    task: str
    input: dict[str, Any]


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream of episodes with drift between them."""

    name: str
    title: str
    api: Literal["acme", "meetings", "payouts", "recipes"]
    governed: str
    """The class whose first-try rate is the compliance."""

    order: list[str]
    """The family of every episode."""

    families: dict[str, Family]
    drift: list[Drift] = []
    stale_slots: list[int] | None = None
    """Governed episodes in which memories still show what has just gone stale; compliance leaves them out.

    None where they are to be worked out: see `lab.slots`.
    """

    split: Split | None = None
    """The class that is also counted apart, before and after an episode."""

    varied: dict[str, list[Any]] = {}
    """Input fields that make no difference, each with values to choose from by the seed."""

    hostile: Hostile | msgspec.UnsetType = msgspec.UNSET
    """What is done to the agents. Unset where nothing is, so that digests of other streams do not depend on it."""

    wants: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """What a server that injects slips into its fixes."""

    history: str | msgspec.UnsetType = msgspec.UNSET
    """Whose real releases its drift is; unset where the drift was thought up."""

    minutes: list[float] | msgspec.UnsetType = msgspec.UNSET
    """How long it is from the episode before to each; unset where it is a minute."""

    habits: Habits | msgspec.UnsetType = msgspec.UNSET
    """How its rows change, where that is drawn anew by each seed."""

    def drawn_for(self, seed: int) -> "Scenario":
        """As a run with this seed plays it."""
        if not self.habits:
            return self
        drawn = drawn_by(self.habits, seed)
        drift = msgspec.convert(drawn["drift"], list[Drift])
        return msgspec.structs.replace(self, order=drawn["order"], drift=drift, minutes=drawn["minutes"])

    def episodes(self, seed: int) -> Iterator[Episode]:
        """The episodes of a run."""
        for index, name in enumerate(self.order):
            family = self.families[name]
            chance = Random(f"{seed}:{index}")  # noqa: S311
            varied = {field: chance.choice(values) for field, values in self.varied.items()}
            filled = {
                field: varied.get(field, value) if field in family.input else value
                for field, value in family.input.items()
            }
            yield Episode(index=index, family=family, task=_worded(family.task, filled), input=filled)

    def minutes_until(self, index: int) -> float:
        """How long an episode comes after the one before."""
        return self.minutes[index] if self.minutes and index < len(self.minutes) else 1.0

    def drift_after(self, index: int) -> list[Drift]:
        """What happens after an episode."""
        return [drift for drift in self.drift if drift.after == index]

    @property
    def first_meetings(self) -> set[int]:
        """The episodes that meet their constraint for the first time."""
        return {self.order.index(name) for name in set(self.order)}

    @property
    def eligible(self) -> list[int]:
        """The episodes over which compliance is measured, once the stale slots are known."""
        left_out = self.first_meetings.union(self.stale_slots or ())
        return [
            index
            for index, name in enumerate(self.order)
            if self.families[name].in_class == self.governed and index not in left_out
        ]


def shipped() -> list[str]:
    """The names of the streams that come with the package."""
    return sorted(Path(str(entry)).stem for entry in _BY_NAME.iterdir() if entry.name.endswith(".toml"))


def load(name: str) -> Scenario:
    """A shipped stream by its name, or one of the user's by the path of its file."""
    if name in shipped():
        return _parsed(_text_of(name), name, taken=())
    path = Path(name)
    if path.suffix != ".toml":
        raise ScenarioError(name, [f"no such stream; there are {', '.join(shipped())}, or give a .toml file"])
    try:
        return parse(path.read_text("utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ScenarioError(name, [f"cannot be read: {reason}"]) from error


def parse(text: str, name: str) -> Scenario:
    """A manifest, checked in itself. Whether the API has what it names, the API must say.

    With `like` it takes over whatever it does not say itself, but for its name, from a shipped stream.
    """
    return _parsed(text, name, taken=shipped())


def _parsed(text: str, name: str, *, taken: Collection[str]) -> Scenario:
    try:
        raw = tomllib.loads(text)
    except ValueError as error:  # of TOML, or of a number that is too long for Python
        raise ScenarioError(name, [str(error)]) from None
    except RecursionError:
        raise ScenarioError(name, ["it is nested too deeply"]) from None
    lines = TomlLines(text)
    problems = _problems_of_form(raw, lines, taken)
    if problems:
        raise ScenarioError(name, problems)
    raw = _with_what_is_drawn(_resolved(raw), lines, problems)
    if problems:
        raise ScenarioError(name, problems)
    families = {
        key: part
        for key, one in raw.get("families", {}).items()
        if (part := _part(one, Family, ("families", key), lines, problems))
    }
    drift = [
        part
        for index, one in enumerate(raw.get("drift", []))
        if (part := _part(one, Drift, ("drift", index), lines, problems))
    ]
    rest = {key: value for key, value in raw.items() if key not in ("families", "drift")}
    whole: Scenario | None = _part({**rest, "families": {}}, Scenario, (), lines, problems)
    if whole is None or problems:
        raise ScenarioError(name, problems)
    named = {key: msgspec.structs.replace(family, name=key) for key, family in families.items()}
    scenario = msgspec.structs.replace(whole, families=named, drift=drift)
    problems += _inconsistencies(scenario, lines)
    if problems:
        raise ScenarioError(name, problems)
    return scenario


def _problems_of_form(raw: Mapping[str, Any], lines: TomlLines, taken: Collection[str]) -> list[str]:
    """What must be right before a manifest can be taken together with the one that it is like."""
    found: list[tuple[int | None, str]] = []
    like, families = raw.get("like"), raw.get("families", {})
    if like is not None and like not in shipped():
        found.append((lines.of("like"), f"there is no stream {like!r} to be like"))
    if "name" not in raw:
        found.append((None, "missing required field `name`"))
    elif raw["name"] in taken:
        found.append((lines.of("name"), f"{raw['name']!r} is the name of a stream that comes with the lab"))
    if not isinstance(families, dict):
        found.append((lines.of("families"), "a family is a table of its own, [families.NAME]"))
    if not isinstance(raw.get("drift", []), list):
        found.append((lines.of("drift"), "a drift is one of a list, [[drift]] in two pairs of brackets"))
    found += (
        (
            lines.of("families", key, "name"),
            "a family is named by its table, [families.NAME]: leave 'name' out",
        )
        for key, family in _mapping(families).items()
        if "name" in _mapping(family)
    )
    return [f"{_at(line)}{problem}" for line, problem in found]


def _resolved(raw: dict[str, Any]) -> dict[str, Any]:
    """A manifest with all that it takes over from the one that it is like, and that from another."""
    changes = {key: value for key, value in raw.items() if key != "like"}
    if "like" not in raw:
        return changes
    base = _resolved(tomllib.loads(_text_of(raw["like"])))
    if "drift" in changes:
        base.pop("stale_slots", None)  # they are those of another drift
    merged: dict[str, Any] = {
        part: {**base.get(part, {}), **changes.get(part, {})}
        for part in ("families", "organic", "habits")
        if part in base or part in changes
    }
    return {**base, **changes, **merged}


def _with_what_is_drawn(raw: dict[str, Any], lines: TomlLines, problems: list[str]) -> dict[str, Any]:
    """A manifest with the episodes and the drift that are drawn from releases or by habits, if it says so."""
    section = next((section for section in _DRAWN if section in raw), None)
    if section is None:
        return raw
    whence, kind, draw = _DRAWN[section]
    how = _part(raw[section], kind, (section,), lines, problems)
    try:
        drawn = {} if how is None else draw(how)
    except ReleasesError as error:
        problems.append(f"{_at(lines.of(section))}{error}")
        return raw
    rest = {key: value for key, value in raw.items() if key != "organic"}
    problems += (
        f"{_at(lines.of(key))}`{key}` is drawn {whence}: leave it out" for key in drawn if key in rest
    )
    return {**drawn, **rest}


def _text_of(shipped_name: str) -> str:
    return (_BY_NAME / f"{shipped_name}.toml").read_text("utf-8")


def _part(
    raw: Any, kind: type[Any], path: tuple[str | int, ...], lines: TomlLines, problems: list[str]
) -> Any:
    """A part of a manifest as what it should be; None, and the problem noted, when it is not."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        said = str(error)
        field = next((key for key in _mapping(raw) if f"`{key}`" in said or f"$.{key}" in said), None)
        where = lines.of(*path, field) if field else lines.of(*path)
        problems.append(f"{_at(where)}{sentence_of(error, kind, 'name' if kind is Family else '')}")
        return None


def _inconsistencies(scenario: Scenario, lines: TomlLines) -> list[str]:
    order, families = scenario.order, scenario.families
    found: list[tuple[int | None, str]] = []
    found += (
        (lines.of("order"), f"the order names {name!r}, which is no family")
        for name in dict.fromkeys(order)
        if name not in families
    )
    found += (
        (lines.of("families", name), f"the family {name!r} is in no episode")
        for name in families
        if name not in order
    )
    if not order:
        found.append((lines.of("order"), "there is no episode"))
    classes = {family.in_class for family in families.values()}
    if scenario.governed not in classes:
        found.append((lines.of("governed"), f"no family is of the class {scenario.governed!r}"))
    if split := scenario.split:
        if split.in_class not in classes:
            found.append((lines.of("split"), f"no family is of the class {split.in_class!r}"))
        if not 0 <= split.after < len(order):
            found.append((lines.of("split"), f"there is no episode {split.after} to split after"))
    for name, family in families.items():
        unknown = [word for word in _placeholders(family.task) if word not in family.input]
        found += (
            (lines.of("families", name, "task"), f"the task names {{{word}}}, which its input lacks")
            for word in unknown
        )
        found += (
            (lines.of("families", name, "input", field), f"the value of {field!r} is none that JSON has")
            for field, value in family.input.items()
            if not _is_json(value)
        )
    for index, drift in enumerate(scenario.drift):
        found += ((lines.of("drift", index), problem) for problem in _problems_of_drift(drift, len(order)))
    for field, values in scenario.varied.items():
        line = lines.of("varied", field)
        if not any(field in family.input for family in families.values()):
            found.append((line, f"{field!r} is varied, and in no family's input"))
        if not values:
            found.append((line, f"there is no value of {field!r} to choose from"))
        if not _is_json(values):
            found.append((line, f"a value of {field!r} is none that JSON has"))
    found += ((lines.of("wants", field), problem) for field, problem in _problems_of_wants(scenario))
    for slot in scenario.stale_slots or ():
        if not 0 <= slot < len(order):
            found.append((lines.of("stale_slots"), f"there is no episode {slot}"))
        elif order[slot] in families and families[order[slot]].in_class != scenario.governed:
            found.append((lines.of("stale_slots"), f"episode {slot} is not of the governed class"))
    return [f"{_at(line)}{problem}" for line, problem in found]


def _problems_of_wants(scenario: Scenario) -> Iterator[tuple[str, str]]:
    wants = scenario.wants or {}
    if bool(wants) != (scenario.hostile == "injects"):
        yield "", "a server that injects says what it wants, and no other does"
    for field, value in wants.items():
        asked = [family.input.get(field) for family in scenario.families.values()]
        if value in (*asked, *scenario.varied.get(field, ())):
            yield field, f"the tasks ask for this {field!r} themselves"
        if any(field == family.field for family in scenario.families.values()):
            yield field, f"the field {field!r} is one that honest fixes set"
        if not _is_json(value):
            yield field, f"the value of {field!r} is none that JSON has"


def _problems_of_drift(drift: Drift, episode_count: int) -> Iterator[str]:
    if not BEFORE_THE_FIRST <= drift.after < episode_count:
        yield f"there is no episode {drift.after} to drift after"
    is_of_rules = bool(drift.add_rules or drift.remove_rules)
    has_part = drift.set is not None or bool(drift.remove)
    if (drift.table is None) != is_of_rules:
        yield "a drift is either of a table or of rules"
    elif is_of_rules and (drift.rows is not None or has_part or drift.version is not None):
        yield "a drift of rules has no rows, set, remove or version"
    if drift.rows is not None and has_part:
        yield "rows are all that the table has then: set and remove do not go with them"
    if not _is_json([drift.rows, drift.set]):
        yield "a value in its rows is none that JSON has"


def _is_json(value: Any) -> bool:
    """Whether a value comes back from JSON as it went in: dates and nan do not."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _at(line: int | None) -> str:
    return f"line {line}: " if line else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _placeholders(text: str) -> list[str]:
    return [piece.partition("}")[0] for piece in text.split("{")[1:] if "}" in piece]


def _worded(text: str, fields: Mapping[str, Any]) -> str:
    for name, value in fields.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
