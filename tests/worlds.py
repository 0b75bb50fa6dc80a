"""Random tables, rules and requests for property tests."""

from collections.abc import Mapping

from hypothesis import strategies as st

from shelflife.contract import Rule
from shelflife.server import Registry
from shelflife.server.delta import Row

KEYS = ["a", "b", "c", "d"]
TABLES = ["t0", "t1", "t2"]
COLUMNS = ["x", "y"]
WIDE = [*COLUMNS, "u", "v"]
"""The columns of rows of which a policy reads only a part."""
ROW_VARIANTS = [None, {}, {"x": "a"}, {"x": "b", "y": ["a", "c"]}, {"y": 1}, {"x": "a", "u": 1, "v": None}]
CELL_VARIANTS = ["a", None, 1]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, 1.0, 1.5]),
    st.sampled_from([*KEYS, "z", ""]),
)
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from(["p", "q"]), scalars)
)
rows = st.dictionaries(st.sampled_from(WIDE), values)
tables = st.dictionaries(st.sampled_from(KEYS), rows)
worlds = st.fixed_dictionaries(dict.fromkeys(TABLES, tables))


def _one_of_each_id(rules: list[Rule]) -> list[Rule]:
    return list({rule.id: rule for rule in rules}.values())


rules = st.builds(
    Rule,
    from_table=st.sampled_from(TABLES),
    to_table=st.sampled_from(TABLES),
    relation=st.sampled_from(["r", "s"]),
    via=st.sampled_from([None, *COLUMNS]),
)
rule_lists = st.lists(rules, max_size=5).map(_one_of_each_id)


def fitting(rules: list[Rule], world: Mapping[str, Mapping[str, Row]]) -> list[Rule]:
    """The rules that a server with these rows takes: one that names a column which no row has is a mistake."""

    def fits(rule: Rule) -> bool:
        rows = world[rule.from_table].values()
        return rule.via is None or not rows or any(rule.via in row for row in rows)

    return [rule for rule in rules if fits(rule)]


def rows_of(registry: Registry) -> dict[str, Mapping[str, Row]]:
    """What the tables of a registry hold now."""
    return {name: table.rows for name, table in registry.state.tables.items()}


def grown(world: Mapping[str, Mapping[str, Row]], rules: list[Rule]) -> Registry:
    """A registry that has come to these rows by reloads, so that rules may name columns which no row has any more."""
    registry = Registry({name: {} for name in world}, rules)
    for name, rows in world.items():
        registry.reload_table(name, rows)
    return registry


fields = st.dictionaries(
    st.sampled_from(["f", "g", "h"]),
    st.one_of(values, st.dictionaries(st.sampled_from(["p", "q", "a/b~c"]), values, max_size=2)),
)

dense_rows = st.fixed_dictionaries(
    {"x": st.sampled_from(["a", "b", "c"]), "y": values}, optional={"u": scalars, "v": scalars}
)
dense_worlds = st.fixed_dictionaries(
    {name: st.fixed_dictionaries({"a": dense_rows}, optional={"b": dense_rows}) for name in TABLES}
)
objects = st.dictionaries(st.sampled_from(["p", "q", "a/b~c"]), values, max_size=2)
dense_fields = st.fixed_dictionaries({"f": objects}, optional={"g": st.one_of(values, objects)})
