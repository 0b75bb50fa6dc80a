"""Every way to look at a view: whatever a policy can do with one is on record, or is refused."""

import copy
import enum
import operator
import pickle
import types
from collections.abc import Mapping

import msgspec
import pytest

from shelflife.server import Registry, fix
from shelflife.server.reads import Reads, Request, RowView, Tables, TableView
from tests.server.readings import PLANS, basic, cells_after, conditions_of, suggestion_of

WHOLE = {"plans": {"basic": None}}
WAYS_TO_READ_A_ROW = {
    "__iter__": list,
    "__len__": len,
    "__eq__": lambda row: row == {},
    "__ne__": lambda row: row != {},
    "__repr__": repr,
    "__str__": str,
    "__format__": format,
    "keys": lambda row: list(row.keys()),
    "values": lambda row: list(row.values()),
    "items": lambda row: list(row.items()),
    "len of keys": lambda row: len(row.keys()),
    "len of items": lambda row: len(row.items()),
    "in values": lambda row: "P1" in row.values(),
    "text of items": lambda row: str(row.items()),
    "an equal on the right": lambda row: {} == row,  # noqa: SIM300
    "dict": dict,
    "unpacked": lambda row: {**row},
    "unpacked as a list": lambda row: [*row],
    "first": lambda row: next(iter(row)),
    "sorted": sorted,
    "min": min,
    "a hint of its length": operator.length_hint,
    "a pattern": lambda row: _matched(row),
    "updating": lambda row: {}.update(row),
}


def _matched(row):
    match row:
        case {"code": code, **others}:
            return code, others


@pytest.mark.spec("4.10")
@pytest.mark.parametrize("way", WAYS_TO_READ_A_ROW)
def test_whatever_looks_at_a_row_as_a_whole_reads_all_of_it(way):
    assert basic(WAYS_TO_READ_A_ROW[way]) == WHOLE


CODE = {"plans": {"basic": ("code",)}}
WAYS_TO_READ_A_CELL = {
    "__getitem__": lambda row: row["code"],
    "__contains__": lambda row: "code" in row,
    "get": lambda row: row.get("code"),
    "in keys": lambda row: "code" in row.keys(),  # noqa: SIM118
    "keys as a set": lambda row: row.keys() & {"code"},
    "in items": lambda row: ("code", "P1") in row.items(),
    "itemgetter": operator.itemgetter("code"),
    "formatted": lambda row: "{0[code]}".format(row),  # noqa: UP030, UP032
    "a percent sign": lambda row: "%(code)s" % row,  # noqa: UP031
    "format_map": lambda row: "{code}".format_map(row),
}


@pytest.mark.spec("4.10")
@pytest.mark.parametrize("way", WAYS_TO_READ_A_CELL)
def test_whatever_looks_at_one_column_reads_that(way):
    assert basic(WAYS_TO_READ_A_CELL[way]) == CODE


WAYS_THAT_READ_NOTHING_MORE = {
    "__bool__": bool,
    "equal to none": lambda row: row == None,  # noqa: E711
    "equal to a number": lambda row: row != 5,
    "__dir__": dir,
    "__sizeof__": lambda row: row.__sizeof__(),
    "__class__": type,
    "keys, not looked at": lambda row: row.keys(),
    "items, not looked at": lambda row: row.items(),
    "key": lambda row: (row.table, row.key),
}


@pytest.mark.parametrize("way", WAYS_THAT_READ_NOTHING_MORE)
def test_what_is_the_same_for_every_row_reads_no_column(way):
    assert basic(WAYS_THAT_READ_NOTHING_MORE[way]) == {"plans": {"basic": ()}}


NO_COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    **{f"pickle {protocol}": lambda view, p=protocol: pickle.dumps(view, p) for protocol in range(6)},
    "__reduce__": lambda view: view.__reduce__(),
    "__reduce_ex__": lambda view: view.__reduce_ex__(4),
    "__getstate__": lambda view: view.__getstate__(),
}
VIEWS = {
    "Request": lambda request, tables: request,
    "Request inside": lambda request, tables: request["customer"],
    "RowView": lambda request, tables: tables.plans["basic"],
    "TableView": lambda request, tables: tables.plans,
    "Tables": lambda request, tables: tables,
}


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("way", NO_COPIES)
def test_a_view_cannot_be_copied_past_the_record(way, view, is_recorded):
    reads = Reads() if is_recorded else None
    state = Registry({"plans": PLANS}).state
    request, tables = Request({"customer": {"name": "Ada"}}, reads), Tables(state, reads)
    found = VIEWS[view](request, tables)
    with pytest.raises(TypeError) as failure:
        NO_COPIES[way](found)
    kind = view.removesuffix(" inside")
    assert str(failure.value) == f"a {kind} can be neither copied nor pickled: take what you need out of it"


@pytest.mark.parametrize("view", ["Request", "RowView", "TableView"])
@pytest.mark.parametrize(
    "way",
    [
        hash,
        reversed,
        lambda view: view < {},
        lambda view: view >= {},
        lambda view: view | {},
        lambda view: {} | view,
        lambda view: view & {},
        lambda view: view + view,
        lambda view: view.__dict__,
        vars,
        int,
        float,
        operator.index,
        lambda view: view(),
        lambda view: view.update({}),
        lambda view: view.pop("code"),
        lambda view: operator.setitem(view, "code", 1),
        lambda view: operator.delitem(view, "code"),
    ],
)
def test_what_a_view_does_not_have_reads_nothing(way, view):
    reads = Reads()
    request, tables = Request({"f": 1}, reads), Tables(Registry({"plans": PLANS}).state, reads)
    found = VIEWS[view](request, tables)
    before = reads.cells, reads.when
    with pytest.raises((TypeError, AttributeError)):
        way(found)
    assert (reads.cells, reads.when) == before


SAYS_NOTHING = {
    *(
        "__abstractmethods__",
        "__annotations__",
        "__class__",
        "__class_getitem__",
        "__dict__",
        "__dir__",
        "__doc__",
    ),
    *("__getattribute__", "__init__", "__init_subclass__", "__module__", "__new__", "__orig_bases__"),
    *("__parameters__", "__sizeof__", "__slots__", "__subclasshook__", "__weakref__"),
}
"""What is the same for all views, or gives out what is another special method."""

REFUSED = {"__delitem__", "__hash__", "__ior__", "__or__", "__reversed__", "__ror__", "__setitem__"}
"""What dictionaries or other objects can, and views cannot."""

CHANGING = {"__setattr__", "__delattr__"}
COPYING = {"__getstate__", "__reduce__", "__reduce_ex__"}
ORDERING = {"__lt__", "__le__", "__gt__", "__ge__"}


def special_methods(kind):
    """What Python may do with its objects by itself, as this version of Python has it. What is None is refused."""
    members = [(name, value) for cls in reversed(kind.__mro__) for name, value in vars(cls).items()]
    return {name for name, value in dict(members).items() if name.startswith("__") and value is not None}


def test_every_special_method_of_a_view_is_on_record_or_refused():
    tested = {
        RowView: {*WAYS_TO_READ_A_ROW, *WAYS_TO_READ_A_CELL, *WAYS_THAT_READ_NOTHING_MORE},
        TableView: {*WAYS_TO_READ_A_TABLE, "__repr__", "__str__", "__format__"},
        Request: set(WAYS_TO_READ_A_REQUEST),
    }
    everything = {name for kind in (object, dict, Mapping) for name in special_methods(kind)}
    for view, ways in tested.items():
        known = ways | SAYS_NOTHING | CHANGING | COPYING | ORDERING
        assert special_methods(view) - known == set()
        assert everything - special_methods(view) <= REFUSED


def test_every_special_method_of_the_tables_is_on_record_or_tells_nothing_of_them():
    known = {
        "__contains__",
        "__getattr__",
        "__getitem__",
        *OF_IDENTITY,
        *SAYS_NOTHING,
        *CHANGING,
        *COPYING,
        *ORDERING,
    }
    assert special_methods(Tables) - known == set()


@pytest.mark.parametrize(("name", "is_there"), [("plans", True), ("none", False), (0, False)])
def test_that_a_table_is_not_there_is_told_as_untracked(name, is_there):
    reads = Reads()
    assert (name in Tables(Registry({"plans": PLANS}).state, reads)) is is_there
    assert reads.untracked == (None if is_there else f"whether there is a table {name}")


OF_IDENTITY = {"__eq__", "__ne__", "__hash__", "__repr__", "__str__", "__format__"}
"""Of the tables themselves these tell one object from another, so that a policy that heeds them is not steady."""


def test_every_public_method_of_a_view_has_a_test():
    mapping = {"get", "items", "keys", "values"}
    of_rows = mapping | {"follow", "follow_all", "key", "table"}
    expected = {TableView: mapping, Request: mapping | {"equals"}, RowView: of_rows}
    expected[Tables] = {"has_rule", "report_untracked"}
    found = {view: {name for name in dir(view) if not name.startswith("_")} for view in expected}
    assert found == expected


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["key", "table", "plans", "anything"])
def test_nothing_of_a_view_can_be_set(view, name):
    tables = Tables(Registry({"plans": PLANS}).state)
    found = VIEWS[view](Request({"customer": {"name": "Ada"}}), tables)
    with pytest.raises(AttributeError):
        setattr(found, name, {"basic": {"code": "P9"}})
    assert tables.plans["basic"]["code"] == "P1"


@pytest.mark.parametrize("is_recorded", [True, False])
def test_what_tables_there_are_cannot_be_seen_in_a_listing(is_recorded):
    tables = Tables(Registry({"plans": PLANS}).state, Reads() if is_recorded else None)
    assert tables.plans
    assert "plans" not in dir(tables)


class Word(str, enum.Enum):  # noqa: UP042 - a `StrEnum` would be spelled like its text
    """Names, as they are usually written down once: formatted, such a member is `Word.PLANS`."""

    PLANS = "plans"
    CODES = "codes"
    BASIC = "basic"
    CODE = "code"
    REDEEMS = "redeems"
    FIELD = "f"


class Whole(int, enum.Enum):
    SEVEN = 7


class Misleading(str):
    """A text that is found under another name than its own."""

    __slots__ = ()

    def __hash__(self):
        return hash("code")

    def __eq__(self, other):
        return other == "code"


WAYS_TO_NAME = {
    "a table": lambda request, tables: tables[Word.PLANS]["basic"]["code"],
    "a table as an attribute": lambda request, tables: getattr(tables, Word.PLANS)["basic"]["code"],
    "a row": lambda request, tables: tables.plans[Word.BASIC]["code"],
    "a row that may be there": lambda request, tables: Word.BASIC in tables.plans,
    "a column": lambda request, tables: tables.plans["basic"][Word.CODE],
    "a column that may be there": lambda request, tables: Word.CODE in tables.plans["basic"],
    "a relation": lambda request, tables: tables.plans["basic"].follow(Word.REDEEMS)["percent"],
    "all of a relation": lambda request, tables: tables.plans["basic"].follow_all(Word.REDEEMS)[0]["percent"],
    "a rule": lambda request, tables: (
        tables.has_rule(Word.PLANS, Word.REDEEMS) and tables.plans["basic"]["code"]
    ),
    "a field": lambda request, tables: request[Word.FIELD] and tables.plans["basic"]["code"],
    "a field that may be there": lambda request, tables: (
        Word.FIELD in request and tables.plans["basic"]["code"]
    ),
    "a field to compare": lambda request, tables: (
        not request.equals(Word.FIELD, Word.CODE) and tables.plans["basic"]["code"]
    ),
}


def plainly(look):
    """The same look by plain texts."""

    class Plain:
        PLANS, BASIC, CODE, REDEEMS, FIELD = "plans", "basic", "code", "redeems", "f"

    return types.FunctionType(look.__code__, {"Word": Plain, "getattr": getattr})


@pytest.mark.spec("4.1", "4.3")
@pytest.mark.parametrize("what", WAYS_TO_NAME)
def test_a_member_of_an_enum_is_recorded_under_its_text(what):
    look = WAYS_TO_NAME[what]
    [by_member, by_text] = [
        msgspec.json.encode(suggestion_of(lambda r, t, one=one: fix("F", saw=one(r, t)), {"f": "x"}))
        for one in (look, plainly(look))
    ]
    assert by_member == by_text
    assert b"Word" not in by_member


def test_a_number_that_is_a_member_of_an_enum_finds_the_row_under_its_digits():
    suggestion = suggestion_of(lambda r, t: fix("F", x=t.t[Whole.SEVEN]["x"]), world={"t": {"7": {"x": 1}}})
    assert suggestion.rows == ("t:7",)


def test_what_is_looked_up_is_what_is_on_record():
    found = []
    assert basic(lambda row: found.append(row.get(Misleading("note")))) == {"plans": {"basic": ("note",)}}
    assert {*found} == {"n"}


@pytest.mark.parametrize("name", [None, 5, ("f",), b"f"])
def test_what_is_no_text_is_the_name_of_nothing(name):
    def look(request):
        assert (request.get(name, "none"), name in request, request.equals(name, None)) == (
            "none",
            False,
            True,
        )

    assert conditions_of(look, {"f": 1}) == ({}, {})
    assert basic(lambda row: (name in row, row.get(name), row.follow(name))) == {"plans": {"basic": ()}}


WAYS_TO_READ_A_TABLE = {
    "__iter__": (list, {"": ()}),
    "__len__": (len, {"": ()}),
    "keys": (lambda table: list(table.keys()), {"": ()}),
    "values": (lambda table: list(table.values()), {"": ()}),
    "items": (lambda table: list(table.items()), {"": ()}),
    "__contains__": (lambda table: "basic" in table, {"basic": ()}),
    "__getitem__": (lambda table: table["basic"], {"basic": ()}),
    "get": (lambda table: table.get("gone"), {"gone": ()}),
    "__eq__": (lambda table: table == {}, {"": ()}),
    "__ne__": (lambda table: table != {"bare": {}, "basic": 1, "pro": 2}, {"": (), "bare": None}),
    "dict": (dict, {"": ()}),
    "a pattern": (lambda table: _matched(table), {"": ()}),
}


@pytest.mark.parametrize("way", WAYS_TO_READ_A_TABLE)
def test_whatever_looks_at_a_table_is_on_record(way):
    look, expected = WAYS_TO_READ_A_TABLE[way]
    assert cells_after(lambda tables: look(tables.plans)) == {"plans": expected}


@pytest.mark.parametrize("look", [repr, str, format])
def test_the_text_of_a_table_tells_its_name_and_no_more(look):
    reads = Reads()
    assert look(Tables(Registry({"plans": PLANS}).state, reads).plans) == "<table plans>"
    assert reads.cells == {}


WHOLE_REQUEST = {"": {"f": 1}}
WAYS_TO_READ_A_REQUEST = {
    "__iter__": (list, WHOLE_REQUEST),
    "__len__": (len, WHOLE_REQUEST),
    "__bool__": (bool, WHOLE_REQUEST),
    "__eq__": (lambda request: request == {}, WHOLE_REQUEST),
    "__ne__": (lambda request: request != {}, WHOLE_REQUEST),
    "__repr__": (repr, WHOLE_REQUEST),
    "__str__": (str, WHOLE_REQUEST),
    "__format__": (format, WHOLE_REQUEST),
    "keys": (lambda request: list(request.keys()), WHOLE_REQUEST),
    "values": (lambda request: list(request.values()), WHOLE_REQUEST),
    "items": (lambda request: list(request.items()), WHOLE_REQUEST),
    "dict": (dict, WHOLE_REQUEST),
    "__getitem__": (lambda request: request["f"], {"f": 1}),
    "get": (lambda request: request.get("f"), {"f": 1}),
    "get what is absent": (lambda request: request.get("g"), {"g": None}),
    "equals": (lambda request: request.equals("f", 1), {"f": 1}),
    "__contains__": (lambda request: "g" in request, {"g": None}),
}


@pytest.mark.parametrize("way", WAYS_TO_READ_A_REQUEST)
def test_whatever_looks_at_a_request_is_on_record(way):
    look, expected = WAYS_TO_READ_A_REQUEST[way]
    assert conditions_of(look, {"f": 1}) == (expected, {})


def test_views_are_mappings():
    assert all(issubclass(view, Mapping) for view in (Request, RowView, TableView))


def test_what_clients_name_as_a_relation_fills_no_memory():
    tables = Tables(Registry({"plans": {"basic": {}}}).state)
    for number in range(1000):
        assert tables.plans["basic"].follow(f"made up {number}") is None
    assert len(tables.plans["basic"]._leads_to) < 100
