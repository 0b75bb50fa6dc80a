"""Every way to look at a view: whatever a policy can do with one is on record, or is refused."""

import copy
import operator
import pickle
from collections.abc import Mapping

import pytest

from shelflife.server import Registry
from shelflife.server.reads import Reads, Request, RowView, Tables, TableView
from tests.server.readings import PLANS, basic, cells_after, conditions_of

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


def special_methods(view):
    """What a class has that a policy may call without naming it, or by a name without an underscore."""
    names = {name for name in dir(view) if name.startswith("__") or not name.startswith("_")}
    return {name for name in names if callable(getattr(view, name))}


OF_OBJECTS = {
    *("__class__", "__class_getitem__", "__delattr__", "__dir__", "__getattribute__", "__hash__", "__init__"),
    *("__init_subclass__", "__new__", "__setattr__", "__sizeof__", "__subclasshook__"),
}
"""What says nothing of a value: it is the same for all, or gives out what is another special method."""

COPYING = {"__getstate__", "__reduce__", "__reduce_ex__"}
ORDERING = {"__lt__", "__le__", "__gt__", "__ge__"}


def test_every_way_to_look_at_a_view_has_a_test():
    of_rows = {
        *WAYS_TO_READ_A_ROW,
        *WAYS_TO_READ_A_CELL,
        *WAYS_THAT_READ_NOTHING_MORE,
        "follow",
        "follow_all",
    }
    assert special_methods(RowView) - OF_OBJECTS - COPYING - ORDERING <= of_rows
    mapping = {
        "__contains__",
        "__eq__",
        "__format__",
        "__getitem__",
        "__iter__",
        "__len__",
        "__ne__",
        "__repr__",
    }
    mapping |= {"__str__", "get", "items", "keys", "values"}
    assert special_methods(TableView) - OF_OBJECTS - COPYING - ORDERING == mapping
    assert special_methods(Request) - OF_OBJECTS - COPYING - ORDERING == mapping | {"equals"}
    of_tables = {"__eq__", "__format__", "__getattr__", "__getitem__", "__ne__", "__repr__", "__str__"}
    of_tables |= {"has_rule", "report_untracked"}
    assert special_methods(Tables) - OF_OBJECTS - COPYING - ORDERING == of_tables


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
