"""Cells: a fix rests on what its policy read of a row, neither on more nor on less."""

from enum import Enum

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shelflife.contract.when import holds
from shelflife.server import Registry, fix
from shelflife.server.policies import Policy, evaluate
from shelflife.server.reads import Reads, Request, Tables
from tests.programs import plain, programs, run_step
from tests.server.readings import basic, cells_after, conditions_of, suggestion_of
from tests.worlds import dense_fields, dense_worlds, grown, rule_lists


@pytest.mark.spec("4.10")
def test_only_the_columns_that_were_read_are_on_record():
    assert basic(lambda row: (row["note"], row["code"])) == {"plans": {"basic": ("code", "note")}}


@pytest.mark.spec("4.10")
def test_a_column_that_is_not_there_is_on_record_too():
    assert basic(lambda row: row.get("missing")) == {"plans": {"basic": ("missing",)}}
    assert basic(lambda row: "missing" in row) == {"plans": {"basic": ("missing",)}}

    def fail(row):
        with pytest.raises(KeyError, match="row basic of plans has no column missing"):
            row["missing"]

    assert basic(fail) == {"plans": {"basic": ("missing",)}}


def test_what_a_policy_asks_for_and_is_not_there_is_told_without_quotes():
    tables = Tables(Registry({"plans": {"basic": {}}}).state, None)
    for ask, told in (
        (lambda: tables.plans["basic"]["missing"], "row basic of plans has no column missing"),
        (lambda: tables["none"], "there is no table called none"),
    ):
        with pytest.raises(KeyError) as caught:
            ask()
        assert str(caught.value) == told


@pytest.mark.spec("4.10")
@pytest.mark.parametrize("key", ["basic", "bare", "gone"])
def test_whether_a_row_is_there_is_read_without_any_column(key):
    for look in (
        lambda tables: key in tables.plans,
        lambda tables: tables.plans.get(key) is None,
        lambda tables: bool(tables.plans.get(key)),
        lambda tables: not tables.plans.get(key),
    ):
        assert cells_after(look) == {"plans": {key: ()}}


def test_a_row_without_columns_is_there_all_the_same():
    def policy(request, tables):
        return fix("F", is_there=bool(tables.plans["bare"]), is_other=bool(tables.plans.get("gone")))

    assert suggestion_of(policy).parameters == {"is_there": True, "is_other": False}


@pytest.mark.spec("4.10")
def test_to_follow_a_rule_reads_its_column_and_without_one_the_whole_row():
    assert basic(lambda row: row.follow("redeems")) == {"plans": {"basic": ("code",)}, "codes": {"P1": ()}}
    assert basic(lambda row: row.follow_all("redeems")) == basic(lambda row: row.follow("redeems"))
    assert basic(lambda row: row.follow("names")) == {"plans": {"basic": None}, "codes": {"P1": ()}}
    assert basic(lambda row: row.follow("no_such_rule")) == {"plans": {"basic": ()}}
    assert basic(lambda row: row.follow("redeems")["percent"])["codes"] == {"P1": ("percent",)}


@pytest.mark.spec("4.2", "4.10")
@pytest.mark.parametrize(
    "walk",
    [
        list,
        len,
        bool,
        iter,
        lambda table: next(iter(table)),
        lambda table: list(table.keys()),
        lambda table: len(table.items()),
        lambda table: list(table.values()),
        lambda table: [row.key for row in table.values()],
        lambda table: [bool(row) for _, row in table.items()],
        lambda table: [table[key] for key in table],
    ],
)
def test_a_walk_reads_which_rows_there_are_and_of_each_what_it_looked_at(walk):
    suggestion = suggestion_of(lambda request, tables: fix("F", x=bool(walk(tables.plans) or True)))
    assert suggestion.cells == {"plans": {"": ()}}
    assert suggestion.rows == ("plans",)


@pytest.mark.spec("4.2", "4.10")
def test_a_walk_that_stops_early_has_read_which_rows_there_are():
    def policy(request, tables):
        found = next(key for key, row in tables.plans.items() if row.get("code") == "P1")
        return fix("F", plan=found)

    suggestion = suggestion_of(policy)
    assert suggestion.cells == {"plans": {"": (), "bare": ("code",), "basic": ("code",)}}
    assert suggestion.rows == ("plans",)


def test_what_was_looked_for_before_a_walk_stays_on_record():
    def read(tables):
        assert "gone" not in tables.plans
        assert tables.plans["pro"]["code"]
        assert len(tables.plans) == 3
        assert "other" not in tables.plans

    assert cells_after(read) == {"plans": {"gone": (), "pro": ("code",), "": ()}}


@pytest.mark.spec("4.11")
@pytest.mark.parametrize(("row_count", "is_whole"), [(64, False), (65, True), (1000, True)])
def test_who_reads_more_than_64_rows_reads_the_table_whole(row_count, is_whole):
    world = {"t": {str(number): {"x": number, "y": 0} for number in range(1000)}, "u": {"a": {"x": 1}}}

    def walk(tables):
        assert tables.u["a"]["x"]
        return [tables.t[key]["x"] for key in list(tables.t)[:row_count]]

    def look_up(tables):
        assert tables.u["a"]["x"]
        return [tables.t.get(str(number)) for number in range(row_count)]

    for read, one in ((walk, ("x",)), (look_up, ())):
        cells = cells_after(read, world)
        assert cells["u"] == {"a": ("x",)}
        assert is_whole is (cells["t"] is None)
        if not is_whole:
            assert set((cells["t"] | {"": one}).values()) == {one}
            assert len(cells["t"].keys() - {""}) == row_count


@pytest.mark.spec("4.11")
def test_a_record_is_never_too_large_for_a_client():
    wide = {f"column_{number}": number for number in range(600)}
    world = {"t": {str(number): wide for number in range(64)}, "u": {"a": {}}}

    def policy(request, tables):
        assert tables.u.get("gone") is None
        return fix("F", sum=sum(row[column] for row in tables.t.values() for column in wide))

    suggestion = suggestion_of(policy, world=world)
    assert suggestion.cells == {"u": {"gone": ()}, "t": {"": (), **dict.fromkeys(world["t"])}}
    assert len(msgspec.json.encode(suggestion)) < 2000
    few = suggestion_of(
        lambda r, tables: fix("F", x=[tables.t["1"][c] for c in list(wide)[:500]]), world=world
    )
    assert len(few.cells["t"]["1"]) == 500


class Plan(str, Enum):  # noqa: UP042 - what people had before 3.11, and whose text is another
    BASIC = "basic"


class Column(str, Enum):  # noqa: UP042
    CODE = "code"


def test_a_member_of_an_enum_of_texts_is_recorded_as_its_text():
    def policy(request, tables):
        return fix(
            "F", code=tables.plans[Plan.BASIC][Column.CODE], is_there=Column.CODE in tables.plans["basic"]
        )

    suggestion = suggestion_of(policy)
    assert suggestion.cells == {"plans": {"basic": ("code",)}}
    assert suggestion.rows == ("plans:basic",)
    assert {type(text) for text in (*suggestion.cells["plans"], *suggestion.cells["plans"]["basic"])} == {str}


@pytest.mark.parametrize("column", [5, None, 1.5, ("code",)])
def test_what_is_no_text_is_the_name_of_no_column(column):
    def read(row):
        assert column not in row
        assert row.get(column) is None

    assert basic(read) == {"plans": {"basic": ()}}


@pytest.mark.spec("4.12")
@pytest.mark.parametrize("value", ["a", 0, False, "", [], {}, {"x": 1}, {"x": None}])
def test_in_reads_that_a_field_is_there_and_not_its_value(value):
    for look in (
        lambda request: "f" in request,
        lambda request: "f" not in request,
        lambda request: "f" in request.keys(),  # noqa: SIM118
    ):
        when, unless = conditions_of(look, {"f": value})
        assert (when, unless) == ({}, {"f": (None,)})
        assert holds(when, {"f": "any other"}, unless)
        assert holds(when, {"f": {}}, unless)
        assert not holds(when, {}, unless)
        assert not holds(when, {"f": None}, unless)


@pytest.mark.spec("4.12")
@pytest.mark.parametrize("request_fields", [{}, {"f": None}])
def test_in_reads_that_a_field_is_absent(request_fields):
    for look in (lambda request: "f" in request, lambda request: "f" not in request):
        assert conditions_of(look, request_fields) == ({"f": None}, {})


@pytest.mark.spec("4.12")
def test_a_field_that_is_there_in_an_object_says_that_the_object_is():
    request = {"customer": {"country": "de", "name": "Ada"}}
    when, unless = conditions_of(lambda request: "country" in request["customer"], request)
    assert (when, unless) == ({}, {"customer/country": (None,)})
    assert not holds(when, {"customer": "Ada"}, unless)
    absent = conditions_of(lambda request: "city" in request["customer"], request)
    assert absent == ({"customer/city": None}, {"customer/country": (None,)})  # as good as any
    assert not holds(*absent[:1], {"customer": "Ada"}, absent[1])
    assert not holds(*absent[:1], {}, absent[1])
    empty = conditions_of(lambda request: "city" in request["customer"], {"customer": {}})
    assert empty == ({"customer/city": None, "customer": {}}, {})


@pytest.mark.spec("4.9", "4.12")
def test_to_compare_inside_of_an_object_counts_no_more_than_that():
    look = lambda request: request["customer"].equals("country", "fr")  # noqa: E731
    for sent in ({"country": "de", "name": "Ada"}, {"name": "Ada"}):
        when, unless = conditions_of(look, {"customer": sent})
        assert when == {}
        assert holds(when, {"customer": {**sent, "age": 5, "country": "it", "name": "Bob"}}, unless)
        assert not holds(when, {"customer": {**sent, "country": "fr"}}, unless)
        assert not any(holds(when, other, unless) for other in ({}, {"customer": "Ada"}, {"customer": {}}))


def test_a_value_that_is_read_counts_beside_its_presence():
    assert conditions_of(lambda request: "f" in request and request["f"], {"f": "a"}) == ({"f": "a"}, {})


@pytest.mark.parametrize("value", [object(), float("nan"), Plan.BASIC])
def test_in_does_not_look_at_the_value_at_all(value):
    assert "f" in Request({"f": value})
    assert "f" in Request({"f": value}, Reads())


class Noted:
    """What a program should be found to have read, worked out from plain rows step by step."""

    def __init__(self, world, rules):
        self.world = world
        self.rules = {(rule.from_table, rule.relation): rule for rule in rules}
        self.cells = {}

    def keys(self, table):
        self.cells.setdefault(table, {})[""] = set()
        return sorted(self.world[table])

    def of(self, table, key, *columns, whole=False):
        if not isinstance(key, str | int) or isinstance(key, bool) or key == "":
            return None
        key, rows = str(key), self.cells.setdefault(table, {})
        known = rows.setdefault(key, set())
        row = self.world[table].get(key)
        if row is not None and known is not None:
            rows[key] = None if whole else known | {*columns}
        return row

    def step(self, step, last):
        """Note what a step reads of tables. What it finds is not needed, but for the rows it leads to."""
        match step:
            case ("row" | "row_length" | "row_text" | "unpacked", table, key):
                self.of(table, last if key == "$last" else key, whole=True)
            case ("has_row" | "is_row", table, key):
                self.of(table, last if key == "$last" else key)
            case ("column" | "has_column", table, key, column):
                self.of(table, last if key == "$last" else key, column)
            case ("equal_rows", table, one, other):
                keys = [last if key == "$last" else key for key in (one, other)]
                rows = [self.of(table, key) for key in keys]
                if None not in rows:  # a row is not compared with what is none
                    for key in keys:
                        self.of(table, key, whole=True)
            case ("follow" | "follow_all", table, key, relation):
                self.follow(table, last if key == "$last" else key, relation, is_all=step[0] == "follow_all")
            case ("scan", table):
                for key in self.keys(table):
                    self.of(table, key, whole=True)
            case ("keys" | "length", table):
                self.keys(table)
            case ("all_of_column", table, column):
                for key in self.keys(table):
                    self.of(table, key, column)
            case ("first_with", table, column):
                for key in self.keys(table):
                    if self.of(table, key, column).get(column) == "a":
                        break

    def follow(self, table, key, relation, *, is_all):
        row, rule = self.of(table, key), self.rules.get((table, relation))
        if row is None or rule is None:
            return
        columns = sorted(row) if rule.via is None else [rule.via]
        self.of(table, key, *columns, whole=rule.via is None)
        found = dict.fromkeys(
            str(one)
            for column in columns
            for one in (row.get(column) if isinstance(row.get(column), list) else [row.get(column)])
            if isinstance(one, str | int) and not isinstance(one, bool) and one != ""
        )
        for one in found:
            if self.of(rule.to_table, one) is not None:
                self.of(rule.to_table, one, whole=True)
                if not is_all:
                    return


def without_what_follows(cells):
    """Cells without rows of which only the presence was read where the set of keys was: the one tells the other."""
    return {
        table: {
            key: None if columns is None else sorted(columns)
            for key, columns in rows.items()
            if columns or columns is None or key == "" or "" not in rows
        }
        for table, rows in cells.items()
    }


@pytest.mark.spec("4.1", "4.10")
@settings(max_examples=200 if settings().max_examples < 1000 else 20_000)
@given(dense_worlds, rule_lists, programs, dense_fields)
@example({t: {"a": {"x": "a", "y": 1}} for t in ("t0", "t1", "t2")}, [], [("equal_rows", "t0", "a", "a")], {})
def test_the_record_is_what_was_read_no_more_and_no_less(world, declared, program, request):
    reads, noted = Reads(), Noted(world, declared)
    state = grown(world, declared).state
    views, last = (Request(request, reads), Tables(state, reads)), None
    for step in program:
        if step != ("stop_when_empty",):
            noted.step(step, last)
            last = run_step(step, last, *views)
            plain(last)
    assert without_what_follows(reads.cells) == without_what_follows(noted.cells)


@given(st.data())
def test_rows_and_tables_are_those_of_the_cells(data):
    world, program = data.draw(dense_worlds), data.draw(programs)

    def policy(request, tables):
        last = None
        for step in program:
            if step != ("stop_when_empty",):
                last = run_step(step, last, request, tables)
        return fix("F")

    registry = Registry(world)
    [violation] = evaluate([Policy.from_function(policy, None)], data.draw(dense_fields), registry.state)
    suggestion = violation.suggestion
    if suggestion.cache_hint == "cacheable":
        assert set(suggestion.depends_on) == suggestion.cells.keys()
        assert {row.partition(":")[0] for row in suggestion.rows} == suggestion.cells.keys()
        for table, rows in suggestion.cells.items():
            told = {row for row in suggestion.rows if row.partition(":")[0] == table}
            is_walk = rows is None or "" in rows
            assert told == ({table} if is_walk else {f"{table}:{key}" for key in rows})
