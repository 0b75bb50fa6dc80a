"""Streams as data: what the episodes are, in which order they come, and what drifts between them."""

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from shelflife.contract import Rule
from shelflife.lab.toml_lines import TomlLines

__all__ = ["Drift", "Episode", "Family", "Scenario", "ScenarioError", "load", "parse", "shipped"]

HintShape = Literal["add a field", "rewrite a value", "conditional rewrite"]

_BY_NAME = resources.files("shelflife.lab") / "streams"


class ScenarioError(Exception):
    """A manifest is wrong: one sentence a problem, each with the line where that is known."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{name}: {problem}" for problem in problems))


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks of one kind, all of which meet the same constraint."""

    name: str = ""
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
    """The index of the episode."""

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
    api: Literal["acme", "recipes"]
    governed: str
    """The class whose first-try rate is the compliance."""

    order: list[str]
    """The family of every episode."""

    families: dict[str, Family]
    drift: list[Drift] = []
    stale_slots: list[int] = []
    """Governed episodes in which every memory still shows what has just gone stale; compliance leaves them out."""

    split_after: int | None = None
    """Where the rewritten class is counted apart, before and after."""

    varied: dict[str, list[Any]] = {}
    """Input fields that make no difference, each with values to choose from by the seed."""

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

    def drift_after(self, index: int) -> list[Drift]:
        """What happens after an episode."""
        return [drift for drift in self.drift if drift.after == index]

    @property
    def first_meetings(self) -> set[int]:
        """The episodes that meet their constraint for the first time."""
        return {self.order.index(name) for name in set(self.order)}

    @property
    def eligible(self) -> list[int]:
        """The episodes over which compliance is measured."""
        left_out = self.first_meetings | set(self.stale_slots)
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
        return parse((_BY_NAME / f"{name}.toml").read_text("utf-8"), name)
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

    With `like` it takes over whatever it does not say itself from a shipped stream.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(name, [str(error)]) from None
    lines = TomlLines(text)
    problems: list[str] = []
    like = raw.pop("like", None)
    if like is not None:
        if like not in shipped():
            raise ScenarioError(name, [f"{_at(lines.of('like'))}there is no stream {like!r} to be like"])
        raw = _merged(tomllib.loads((_BY_NAME / f"{like}.toml").read_text("utf-8")), raw)
    families = {
        key: part
        for key in _mapping(raw.get("families"))
        if (part := _part(raw["families"][key], Family, ("families", key), lines, problems))
    }
    drift = [
        part
        for index, one in enumerate(_list(raw.get("drift")))
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
        problems.append(f"{_at(where)}{said[:1].lower()}{said[1:]}")
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
    if scenario.governed not in {family.in_class for family in families.values()}:
        found.append((lines.of("governed"), f"no family is of the class {scenario.governed!r}"))
    for name, family in families.items():
        unknown = [word for word in _placeholders(family.task) if word not in family.input]
        found += (
            (lines.of("families", name, "task"), f"the task names {{{word}}}, which its input lacks")
            for word in unknown
        )
    for index, drift in enumerate(scenario.drift):
        line = lines.of("drift", index)
        if not 0 <= drift.after < len(order):
            found.append((line, f"there is no episode {drift.after} to drift after"))
        is_of_rules = bool(drift.add_rules or drift.remove_rules)
        if (drift.table is None) != is_of_rules:
            found.append((line, "a drift is either of a table or of rules"))
    for slot in scenario.stale_slots:
        if not 0 <= slot < len(order):
            found.append((lines.of("stale_slots"), f"there is no episode {slot}"))
        elif order[slot] in families and families[order[slot]].in_class != scenario.governed:
            found.append((lines.of("stale_slots"), f"episode {slot} is not of the governed class"))
    return [f"{_at(line)}{problem}" for line, problem in found]


def _at(line: int | None) -> str:
    return f"line {line}: " if line else ""


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {**base, **changes, "families": {**base["families"], **_mapping(changes.get("families"))}}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _placeholders(text: str) -> list[str]:
    return [piece.partition("}")[0] for piece in text.split("{")[1:] if "}" in piece]


def _worded(text: str, fields: Mapping[str, Any]) -> str:
    for name, value in fields.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
