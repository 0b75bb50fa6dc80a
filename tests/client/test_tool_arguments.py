"""What a memory writes into the arguments of a function goes where the model's own would go, and in the same form."""

import asyncio
import datetime
import functools
import inspect
import subprocess
import sys
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from shelflife.client import Memory
from shelflife.client.arguments import Signed
from shelflife.client.events import Applied, Refused
from tests.client.tool_results import ROOT, fixing


class Order(BaseModel):
    plan: str
    seats: int = 1


def set_by(function, parameters, *args, **kwargs):
    """What a function is called with at first, and once it has said which arguments are to be set."""
    happened: list[Any] = []
    seen: list[Any] = []

    @functools.wraps(function)
    def noting(*args, **kwargs):
        seen.append(function(*args, **kwargs))
        return fixing(parameters)

    tool = Memory(on_event=happened.append).tool(ROOT)(noting)
    for _ in range(2):
        tool(*args, **kwargs)
    return seen, [type(event) for event in happened if isinstance(event, Applied | Refused)]


@pytest.mark.parametrize(
    ("annotated", "fixed", "given"),
    [
        (datetime.date | None, "2026-02-02", datetime.date(2026, 2, 2)),
        (Literal["A", "B"], "B", "B"),
        (Order, {"plan": "growth"}, Order(plan="growth")),
        ("int", 3, 3),
        (inspect.Parameter.empty, "2026-02-02", "2026-02-02"),
    ],
)
def test_a_fix_arrives_as_the_type_that_a_function_says_it_takes(annotated, fixed, given):
    def book(plan, slot=None):
        return slot

    if annotated is not inspect.Parameter.empty:
        book.__annotations__["slot"] = annotated
    assert set_by(book, {"slot": fixed}, "growth") == ([None, given], [Applied])


@pytest.mark.parametrize(
    ("annotated", "fixed"),
    [(datetime.date, "soon"), (Literal["A", "B"], "C"), (int, "many"), (Order, {"seats": 3})],
)
def test_a_fix_that_a_function_does_not_take_is_left_out(annotated, fixed):
    def book(plan, slot=None):
        return slot

    book.__annotations__["slot"] = annotated
    assert set_by(book, {"slot": fixed}, "growth") == ([None, None], [Refused])


def test_types_are_heeded_where_there_is_no_pydantic():
    code = """
import sys
from datetime import date
from shelflife.client.arguments import Signed
def book(slot: date | None = None, at: complex = 0): pass
validated = Signed(book).takes.validated
assert validated({"slot": "2026-02-02"}, ["slot"]) == {"slot": date(2026, 2, 2)}
try:
    validated({"slot": "soon"}, ["slot"])
except ValueError:
    print("pydantic" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_a_fix_does_not_take_the_place_of_the_object_that_a_method_is_of():
    class Desk:
        def subscribe(self, **wanted):
            return self, wanted

    desk = Desk()
    seen, happened = set_by(Desk.subscribe, {"self": "x"}, desk, plan="growth")
    assert (seen, happened) == ([(desk, {"plan": "growth"})] * 2, [Refused])


def test_a_method_of_a_class_is_a_tool_too():
    memory = Memory()

    class Desk:
        @classmethod
        @memory.tool(ROOT)
        def subscribe(cls, plan, promo_code=None):
            return fixing({"promo_code": "S"}) if promo_code is None else (cls, promo_code)

    Desk.subscribe("growth")
    assert Desk.subscribe("growth") == (Desk, "S")


def test_an_argument_that_a_fix_takes_away_leaves_those_after_it_in_their_place():
    def order(plan, code="none", *more):
        return plan, code, more

    seen, _ = set_by(order, {"code": None}, "growth", "OLD", 1, 2)
    assert seen == [("growth", "OLD", (1, 2)), ("growth", "none", (1, 2))]


def test_an_object_that_is_called_like_an_async_function_is_a_tool():
    class Subscribing:
        async def __call__(self, plan, promo_code=None):
            return fixing({"promo_code": "S"}) if promo_code is None else promo_code

    tool = Memory().tool(ROOT)(Subscribing())

    async def twice():
        await tool("growth")
        return await tool("growth")

    assert asyncio.run(twice()) == "S"


PARAMETERS = st.sampled_from(
    [
        "a, b, c",
        "a, /, b, c=1",
        "a, b=1, *rest",
        "a, b=1, *rest, c=2, **more",
        "a, /, b=1, *, c",
        "a, *rest, b, c=1",
        "*, a, b=1, c=2",
        "self, a, b=1, **more",
    ]
)


@given(
    parameters=PARAMETERS,
    values=st.lists(st.integers(0, 9), min_size=4, max_size=6),
    by_name=st.integers(0, 4),
    fixed=st.sampled_from(["a", "b", "c"]),
    fix=st.sampled_from(["FIX", None, 7]),
)
def test_a_fix_changes_the_one_argument_and_no_other(parameters, values, by_name, fixed, fix):
    """However arguments are given, the function sees them as before, but for the one."""
    space: dict[str, Any] = {}
    exec(f"def function({parameters}): return dict(locals())", space)
    function = space["function"]
    names = [name for name in inspect.signature(function).parameters if name not in ("rest", "more")]
    args, kwargs = values[:by_name], dict(zip(names[by_name:], values, strict=False))
    signed = Signed(function)
    bound = signed.bound(args, kwargs)
    if bound is None:
        return
    arguments = signed.named_in(bound)
    before = signed.called_with(bound, arguments)
    assert before == function(*args, **kwargs)
    if fixed not in (signed.takes.names or arguments):
        return
    amended = {name: value for name, value in {**arguments, fixed: fix}.items() if value is not None}
    after = signed.called_with(bound, amended)
    assert {**after, fixed: 0} == {**before, fixed: 0}
    has_default = fixed in signed.takes.defaults
    assert after[fixed] == (
        fix if fix is not None else signed.takes.defaults[fixed] if has_default else before[fixed]
    )
