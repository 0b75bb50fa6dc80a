"""The registry: versions, reloads, history and rules, against a plain model."""

import decimal
import math
import re
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from shelflife.contract import Rule, same_json
from shelflife.contract.errors import BadName
from shelflife.server import Registry, ReloadRefused, UnknownTable, UsageError, VersionTaken
from shelflife.server.delta import Delta
from shelflife.server.errors import BadRow, BadRule
from shelflife.server.faces import face_of
from shelflife.server.sqlite_log import SqliteLog
from shelflife.server.tables import RowMap, content_of
from shelflife.server.wire import Level
from tests.worlds import TABLES, fitting, rows, rule_lists, tables, worlds

TIE = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
TIE_TOO = Rule(from_table="codes", to_table="promos", relation="needs_too", via="code")
CODES = {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}


def registry(version="1.0.0"):
    content = {"codes": CODES, "promos": {"SUMMER": {}, "SCALE": {}}}
    return Registry(content, versions={"codes": version, "promos": "1.0.0"})


def changes(reg, since, table="codes"):
    return face_of(reg.state, Level.FINGERPRINT).changes_since({table: since}, None).tables[table]


@pytest.mark.spec("7.2")
def test_a_version_is_minted_when_the_content_changes():
    reg = registry()
    report = reg.reload_table("codes", {"growth": {"code": "WINTER"}, "new": {}})
    assert report.old_version == "1.0.0"
    assert re.fullmatch(r"~[a-z2-7]{12}", report.new_version)
    assert (report.added, report.removed, report.changed) == (("new",), ("scale",), ("growth",))
    assert reg.state.tables["codes"].version == report.new_version


@pytest.mark.spec("7.2")
def test_identical_content_without_a_version_is_no_change():
    reg = registry()
    before = reg.state
    report = reg.reload_table("codes", {"scale": {"code": "SCALE"}, "growth": {"code": "SUMMER"}})
    assert report.old_version == report.new_version == "1.0.0"
    assert reg.state is before


@pytest.mark.spec("7.3")
def test_an_explicit_version_is_borne_also_when_no_row_changed():
    reg = registry()
    report = reg.reload_table("codes", CODES, version="1.1.0")
    assert report.new_version == "1.1.0"
    assert not (report.added)
    assert not (report.removed)
    assert not (report.changed)
    assert changes(reg, "1.0.0").known


@pytest.mark.spec("7.4")
def test_a_version_that_stands_for_other_content_is_refused_and_nothing_changes():
    reg = registry()
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}}, version="2")
    before = reg.state
    with pytest.raises(VersionTaken, match="version 2 of table codes was used before"):
        reg.reload_table("codes", set={"growth": {"code": "SPRING"}}, version="2")
    with pytest.raises(VersionTaken):
        reg.reload_table("codes", set={"growth": {"code": "SPRING"}}, version="1.0.0")
    assert reg.state is before


@pytest.mark.spec("7.4", "9.3")
def test_a_rollback_to_the_old_content_may_bear_the_old_version():
    reg = registry()
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}}, version="2")
    assert reg.reload_table("codes", CODES, version="1.0.0").changed == ("growth",)
    assert changes(reg, "2").changed == ("growth",)
    assert changes(reg, "1.0.0").changed == ()
    assert reg.reload_table("codes", set={"growth": {"code": "WINTER"}}, version="2").new_version == "2"


@pytest.mark.spec("7.12")
@given(one=tables, steps=st.lists(tables, max_size=4), order=st.randoms())
def test_the_same_content_has_the_same_version_however_it_came_about(one, steps, order):
    walked = Registry({"t": {}})
    for content in (*steps, one):
        walked.reload_table("t", content)
    keys = list(one)
    order.shuffle(keys)
    loaded = Registry({"t": {key: one[key] for key in keys}})
    assert loaded.state.tables["t"].content == walked.state.tables["t"].content == content_of(one)
    assert walked.state.tables["t"].version == loaded.state.tables["t"].version


@pytest.mark.spec("7.12")
def test_a_version_that_looks_like_a_minted_one_cannot_be_chosen():
    reg = registry()
    minted = reg.reload_table("codes", {}).new_version
    with pytest.raises(BadName, match="made from the content"):
        reg.reload_table("codes", CODES, version=minted)
    with pytest.raises(BadName, match="made from the content"):
        registry(minted)


@pytest.mark.spec("7.12")
def test_two_runs_that_change_differently_never_mint_the_same_version():
    winter = registry().reload_table("codes", set={"growth": {"code": "WINTER"}})
    spring = registry().reload_table("codes", set={"growth": {"code": "SPRING"}})
    again = registry().reload_table("codes", set={"growth": {"code": "WINTER"}})
    assert winter.new_version == again.new_version != spring.new_version


@pytest.mark.spec("7.12")
def test_a_first_version_that_was_not_given_tells_one_content_from_another():
    versions = {
        Registry({"codes": content}).state.tables["codes"].version
        for content in (CODES, dict(reversed(CODES.items())), {}, {"growth": {"code": "WINTER"}})
    }
    assert len(versions) == 3


def test_rows_can_be_taken_out_edited_and_handed_back():
    reg = registry()
    before = reg.state
    mine = reg.rows("codes")
    mine["growth"]["code"] = "WINTER"
    assert before.tables["codes"].rows["growth"] == {"code": "SUMMER"}
    assert reg.reload_table("codes", mine).changed == ("growth",)
    with pytest.raises(UnknownTable):
        reg.rows("cods")


@pytest.mark.spec("7.5", "7.6")
def test_the_walk_uses_the_graph_from_before_the_reload():
    reg = Registry({"codes": CODES, "promos": {"SUMMER": {}, "WINTER": {}}}, [TIE])
    report = reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    assert report.affected_downstream == ("promos:SUMMER",)


@pytest.mark.spec("1.2", "7.8", "7.9")
@pytest.mark.parametrize(
    ("reload", "error", "sentence"),
    [
        (lambda reg: reg.reload_table("cods", {}), UnknownTable, "no table called 'cods'"),
        (lambda reg: reg.reload_table("codes", {"x": 1}), BadRow, "a row is an object"),
        (lambda reg: reg.reload_table("codes", {"x": None}), BadRow, "a row is an object"),
        (lambda reg: reg.reload_table("codes", set={"x": []}), BadRow, "a row is an object"),
        (lambda reg: reg.reload_table("codes", {"": {}}), BadRow, "is empty"),
        (lambda reg: reg.reload_table("codes", {1: {}}), BadRow, "keys are strings"),
        (lambda reg: reg.reload_table("codes", {"k" * 1025: {}}), BadRow, "longer than 1024 bytes"),
        (lambda reg: reg.reload_table("codes", {"é" * 513: {}}), BadRow, "longer than 1024 bytes"),
        (lambda reg: reg.reload_table("codes", {"\ud800": {}}), BadRow, "not valid Unicode"),
        (lambda reg: reg.reload_table("codes", {"x": {"y": object()}}), BadRow, "cannot be written as JSON"),
        (lambda reg: reg.reload_table("codes", 10**5000), BadRow, "are a value of type int"),
        (lambda reg: reg.reload_table("codes", {"x": 10**5000}), BadRow, "is a value of type int"),
        (lambda reg: reg.reload_table("codes", [{}]), BadRow, "give an object from key to row"),
        (lambda reg: reg.reload_table("codes", set=[{}]), BadRow, "give an object from key to row"),
        (lambda reg: reg.reload_table("codes"), ReloadRefused, "either rows, or set and remove"),
        (lambda reg: reg.reload_table("codes", {}, remove=["x"]), ReloadRefused, "either rows, or set"),
        (lambda reg: reg.reload_table("codes", remove=["a", "a"]), ReloadRefused, "removed twice"),
        (
            lambda reg: reg.reload_table("codes", set={"a": {}}, remove=["a"]),
            ReloadRefused,
            "both set and removed",
        ),
        (lambda reg: reg.reload_table("codes", remove=[""]), BadRow, "is empty"),
        (lambda reg: reg.reload_rules(), ReloadRefused, "either rules, or add and remove"),
        (lambda reg: reg.reload_rules([], add=[TIE]), ReloadRefused, "either rules, or add and remove"),
        (lambda reg: reg.reload_table("codes", {}, version=""), BadName, "cannot be a version"),
        (lambda reg: reg.reload_table("codes", {}, version="1.0 "), BadName, "cannot be a version"),
        (lambda reg: reg.reload_table("codes", {}, version="é"), BadName, "cannot be a version"),
    ],
)
def test_bad_input_gets_one_sentence_and_changes_nothing(reload, error, sentence):
    reg = registry()
    before = reg.state
    with pytest.raises(error, match=sentence):
        reload(reg)
    assert reg.state is before


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


UNCARRIED = {
    "NaN": (lambda: math.nan, "holds a number that JSON cannot carry: NaN"),
    "NaN in a set": (lambda: {math.nan}, "holds a number that JSON cannot carry: NaN"),
    "infinity": (lambda: [-math.inf], "holds a number that JSON cannot carry: infinity"),
    "too many digits": (
        lambda: 10**4300,
        "holds a number that JSON cannot carry: one of more than 4300 digits",
    ),
    "surrogate": (lambda: "\ud800", "holds text that is not valid Unicode"),
    "surrogate within": (lambda: ["\ud800"], "holds text that is not valid Unicode"),
    "surrogate in a name": (lambda: {"\ud800": 1}, "has a name that is not valid Unicode"),
    "deep": (lambda: nested(17), "is nested deeper than 16 levels"),
    "very deep": (lambda: nested(100_000), "is nested deeper than 16 levels"),
}


@pytest.mark.spec("7.8", "7.9")
@pytest.mark.parametrize("name", UNCARRIED)
@pytest.mark.parametrize("old_value", [None, [None], "x"])
def test_a_row_that_json_cannot_carry_is_refused_by_its_key_and_for_its_one_reason(name, old_value):
    value, sentence = UNCARRIED[name]
    rows = {"fine": {}, "g": {"v": value()}}
    whole = f"row 'g' of table t {sentence}"
    reg = Registry({"t": {"fine": {}, "g": {"v": old_value}}})
    before = reg.state
    for reload in (
        lambda: Registry({"t": rows}),
        lambda: reg.reload_table("t", rows),
        lambda: reg.reload_table("t", set=rows),
    ):
        with pytest.raises(BadRow) as refused:
            reload()
        assert str(refused.value) == whole
    assert reg.state is before


def test_a_row_may_be_nested_as_deeply_as_is_said():
    reg = Registry({"t": {"g": {"v": nested(16)}}})
    assert reg.state.tables["t"].rows["g"] == {"v": nested(16)}


def test_rows_may_be_any_mappings_whose_values_json_can_carry():
    reg = Registry({"t": {"a": {"v": "1"}, "b": {}}})
    rows = {"a": MappingProxyType({"v": decimal.Decimal(1)}), "c": MappingProxyType({"v": {2}})}
    report = reg.reload_table("t", rows)
    assert (report.added, report.removed, report.changed) == (("c",), ("b",), ())
    assert reg.rows("t") == {"a": {"v": "1"}, "c": {"v": [2]}}


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**30])
def test_whole_numbers_of_more_than_64_bits_are_kept_to_the_last_digit(number, tmp_path):
    def started():
        return Registry({"t": {"a": {"v": number}}, "u": {str(number): {}}}, [tie], log=SqliteLog(file))

    tie, file = Rule(from_table="t", to_table="u", relation="r"), tmp_path / "state"
    reg = started()
    first = reg.state.tables["t"].version
    assert reg.reload_table("t", {"a": {"v": number}}).new_version == first
    report = reg.reload_table("t", {"a": {"v": number + 1}})
    assert report.changed == ("a",)
    assert report.new_version != first
    assert report.affected_downstream == (f"u:{number}",)
    reg._log.close()
    again = started()
    assert again.state.tables["t"].rows["a"] == {"v": number + 1}
    assert again.state.tables["t"].version == report.new_version
    again._log.close()


@pytest.mark.spec("1.2")
@pytest.mark.parametrize("version", ["", None, " ", "é", 5])
def test_a_first_version_is_checked_like_any_other(version):
    with pytest.raises(BadName, match="cannot be a version"):
        Registry({"t": {}}, versions={"t": version})


@pytest.mark.spec("7.8", "7.9")
def test_a_rule_by_a_column_that_no_row_has_is_refused():
    wrong = Rule(from_table="codes", to_table="promos", relation="needs", via="cod")
    sentence = "the rule codes:needs goes by the column 'cod', which no row of codes has"
    with pytest.raises(BadRule, match=sentence):
        Registry({"codes": CODES, "promos": {}}, [wrong])
    reg = registry()
    before = reg.state
    for rules in ({"rules": [wrong]}, {"add": [TIE_TOO, wrong]}):
        with pytest.raises(BadRule, match=sentence):
            reg.reload_rules(**rules)
    assert reg.state is before


def test_of_a_table_without_rows_nobody_can_say_which_columns_it_has():
    reg = Registry({"codes": {}, "promos": {}}, [TIE])
    reg.reload_rules(add=[Rule(from_table="promos", to_table="codes", relation="r", via="anything")])
    assert len(reg.state.rules) == 2


def test_one_row_with_the_column_is_enough():
    reg = Registry({"codes": {"a": {}, "b": {"code": None}}, "promos": {}}, [TIE])
    assert list(reg.state.rules) == [TIE]


def test_a_rule_that_holds_already_is_not_held_against_rows_that_came_later():
    reg = Registry({"codes": CODES, "promos": {"SUMMER": {}}}, [TIE])
    reg.reload_table("codes", {"growth": {"promo": "SUMMER"}})
    other = Rule(from_table="codes", to_table="promos", relation="other", via="promo")
    assert reg.reload_rules(add=[other]).added == (other,)
    assert reg.reload_rules([TIE]).removed == (other,)


@pytest.mark.parametrize("via", ["\ud800", 5, ["code"]])
def test_a_column_that_is_no_text_is_refused(via):
    with pytest.raises(BadName, match="cannot be a column"):
        Rule(from_table="codes", to_table="promos", relation="r", via=via)


@pytest.mark.spec("7.7")
def test_rules_are_reloaded_whole_or_by_a_change():
    one = Rule(from_table="codes", to_table="promos", relation="one", via="code")
    two = Rule(from_table="codes", to_table="promos", relation="two")
    reg = registry()
    empty = reg.state.rules.version
    report = reg.reload_rules([one])
    assert (report.old_version, report.added, report.removed) == (empty, (one,), ())
    report = reg.reload_rules(add=[two], remove=[one])
    assert (report.added, report.removed) == ((two,), (one,))
    assert list(reg.state.rules) == [two]
    before = reg.state
    assert reg.reload_rules([two]).new_version == report.new_version
    assert reg.state is before


@pytest.mark.spec("7.8", "7.9")
def test_a_rule_between_unknown_tables_or_one_that_is_not_there_is_refused():
    reg = registry()
    before = reg.state
    with pytest.raises(BadRule, match="names the table plans, which is not loaded"):
        reg.reload_rules(add=[Rule(from_table="codes", to_table="plans", relation="one")])
    with pytest.raises(ReloadRefused, match="no rule codes:one like that"):
        reg.reload_rules(remove=[Rule(from_table="codes", to_table="promos", relation="one")])
    assert reg.state is before


def test_a_version_for_a_table_that_is_not_declared_is_a_mistake():
    with pytest.raises(UsageError, match="a version is given for cods"):
        Registry({"codes": CODES}, versions={"cods": "2"})


@pytest.mark.spec("9.4")
def test_too_old_is_said_plainly():
    reg = registry()
    versions = [
        reg.reload_table("codes", set={"growth": {"code": str(number)}}).new_version for number in range(1100)
    ]
    assert not changes(reg, "1.0.0").known
    assert changes(reg, versions[-2]).changed == ("growth",)
    assert not changes(reg, "7.7.7").known
    gone = changes(reg, "1.0.0", table="gone")
    assert (gone.known, gone.version) == (False, None)


@pytest.mark.spec("7.4")
def test_a_version_stands_for_its_content_also_when_that_is_long_gone():
    reg = registry()
    for number in range(1100):
        reg.reload_table("codes", set={"growth": {"code": str(number)}})
    with pytest.raises(VersionTaken):
        reg.reload_table("codes", version="1.0.0", set={})
    assert reg.reload_table("codes", CODES, version="1.0.0").new_version == "1.0.0"


def test_one_reload_that_is_larger_than_the_history_leaves_none():
    reg = registry()
    large = reg.reload_table("codes", {str(number): {} for number in range(100_001)})
    assert not changes(reg, "1.0.0").known
    reg.reload_table("codes", remove=["1"])
    assert changes(reg, large.new_version).removed == ("1",)


def test_the_rows_that_were_handed_in_stay_the_callers():
    mine = {"growth": {"codes": ["A"]}}
    reg = Registry({"codes": mine})
    mine["growth"]["codes"].append("B")
    new = {"growth": {"codes": ["C"]}}
    reg.reload_table("codes", new)
    new["growth"]["codes"].append("D")
    assert reg.state.tables["codes"].rows["growth"] == {"codes": ["C"]}


@given(
    tables, st.lists(st.tuples(tables, st.lists(st.sampled_from(["a", "b", "c"]), unique=True)), max_size=8)
)
def test_a_row_map_stays_equal_to_a_plain_dictionary(base, edits):
    row_map, model = (
        RowMap(dict(base) | {str(n): {} for n in range(40)}),
        dict(base) | {str(n): {} for n in range(40)},
    )
    for new_rows, gone in edits:
        delta = Delta.setting(model, {k: r for k, r in new_rows.items() if k not in gone}, gone)
        older, older_model = row_map, model
        row_map, model = row_map.after(delta), delta.applied_to(model)
        assert same_json(row_map.to_dict(), model)
        assert sorted(row_map) == sorted(model)
        assert len(row_map) == len(model)
        assert all(key in row_map and same_json(row_map[key], row) for key, row in model.items())
        assert not any(key in row_map for key in gone)
        assert same_json(older.to_dict(), older_model)


class RegistryMachine(RuleBasedStateMachine):
    """Any sequence of reloads leaves what a plain model says, and every version can be asked about."""

    versions = Bundle("versions")

    @initialize(world=worlds, declared=rule_lists)
    def start(self, world, declared):
        declared = fitting(declared, world)
        self.registry = Registry(world, declared, versions=dict.fromkeys(TABLES, "1.0.0"))
        self.model = {name: dict(table) for name, table in world.items()}
        self.rules = set(declared)
        self.contents = {(name, "1.0.0"): dict(table) for name, table in world.items()}
        self.rule_sets = {self.registry.state.rules.version: set(declared)}

    def _note(self, report):
        name = report.table
        state = self.registry.state
        assert state.tables[name].version == report.new_version
        known = self.contents.setdefault((name, report.new_version), dict(self.model[name]))
        assert same_json(known, self.model[name])

    @rule(
        name=st.sampled_from(TABLES), content=tables, version=st.none() | st.sampled_from(["1.0.0", "2", "3"])
    )
    def reload_whole(self, name, content, version):
        self._reload(
            name, content, version, lambda: self.registry.reload_table(name, content, version=version)
        )

    @rule(name=st.sampled_from(TABLES), changed=tables, gone=st.sets(st.sampled_from(["a", "b", "c", "d"])))
    def reload_change(self, name, changed, gone):
        changed = {key: row for key, row in changed.items() if key not in gone}
        content = {key: row for key, row in (self.model[name] | changed).items() if key not in gone}
        self._reload(
            name, content, None, lambda: self.registry.reload_table(name, set=changed, remove=sorted(gone))
        )

    def _reload(self, name, content, version, reload):
        used = self.contents.get((name, version))
        if version is not None and used is not None and not same_json(used, content):
            with pytest.raises(VersionTaken):
                reload()
            return
        old = self.model[name]
        self.model[name] = content
        report = reload()
        direct = Delta.between(old, content).diff
        assert (report.added, report.removed, report.changed) == (
            direct.added,
            direct.removed,
            direct.changed,
        )
        if version is None:
            assert (report.new_version == report.old_version) == (not direct)
        else:
            assert report.new_version == version
        self._note(report)

    @rule(declared=rule_lists)
    def reload_rules(self, declared):
        declared = fitting(declared, self.model)
        report = self.registry.reload_rules(declared)
        assert set(report.added) == set(declared) - self.rules
        assert set(report.removed) == self.rules - set(declared)
        self.rules = set(declared)
        self.rule_sets[report.new_version] = set(declared)

    @precondition(lambda self: hasattr(self, "registry"))
    @invariant()
    def the_state_is_the_models(self):
        state = self.registry.state
        for name, content in self.model.items():
            assert same_json(state.tables[name].rows.to_dict(), content)
        assert set(state.rules) == self.rules

    @precondition(lambda self: hasattr(self, "registry"))
    @invariant()
    def changes_since_any_version_are_the_direct_diff(self):
        state = self.registry.state
        for (name, version), content in self.contents.items():
            answer = face_of(state, Level.FINGERPRINT).changes_since({name: version}, None).tables[name]
            direct = Delta.between(content, self.model[name]).diff
            assert answer.known
            assert (answer.added, answer.removed, answer.changed) == (
                direct.added,
                direct.removed,
                direct.changed,
            )
        for version, older in self.rule_sets.items():
            answer = face_of(state, Level.FINGERPRINT).changes_since({}, version).rules
            assert answer.known
            assert (set(answer.added), set(answer.removed)) == (self.rules - older, older - self.rules)


RegistryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=15)
TestRegistryMachine = pytest.mark.spec("7.2", "7.3", "7.4", "7.5", "9.2", "9.3")(RegistryMachine.TestCase)


@given(st.dictionaries(st.sampled_from(["a", "b"]), rows))
def test_a_table_from_outside_is_held_as_given(content):
    assert same_json(Registry({"t": content}).state.tables["t"].rows.to_dict(), content)
