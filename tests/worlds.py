"""Random tables, rules and requests for property tests."""

from hypothesis import strategies as st

from shelflife.contract import Rule

KEYS = ["a", "b", "c", "d"]
TABLES = ["t0", "t1", "t2"]
COLUMNS = ["x", "y"]

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
rows = st.dictionaries(st.sampled_from(COLUMNS), values)
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

fields = st.dictionaries(
    st.sampled_from(["f", "g", "h"]),
    st.one_of(values, st.dictionaries(st.sampled_from(["p", "q", "a/b~c"]), values, max_size=2)),
)
