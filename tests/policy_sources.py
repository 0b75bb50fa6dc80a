"""Sources of policies, each as the texts of its files: pairs that may say different things, pairs that say the same,
and such as could easily come out differently in another process."""

__all__ = ["DIFFERENT", "EASILY_UNSTEADY", "SAME"]

POLICY = "def policy(request, tables):\n    return "


def returning(expression, before="", after=""):
    return {"policies.py": f"{before}\n{POLICY}{expression}\n{after}"}


def calling(helper, call="helper(request)", before=""):
    return returning(call, before=f"{before}\n{helper}")


def with_global(value, imports=""):
    return returning("LIMIT", before=f"{imports}\nLIMIT = {value}")


def with_package(text, call="rate(1)", folder=""):
    """A policy that calls a function of another module, as it may be imported."""
    return {
        "policies.py": "import shop.prices\nfrom shop import prices\nfrom shop.prices import rate\n"
        + POLICY
        + call,
        f"{folder}shop/__init__.py": "",
        f"{folder}shop/prices.py": text,
    }


CLASS = (
    "class Plan:\n    limit = {limit}\n    def fits(self, amount):\n        return amount {sign} self.limit\n"
)
SLOTTED = "class Plan:\n    __slots__ = ('limit',)\n    def __init__(self, limit): self.limit = limit\n"
DATACLASS = "from dataclasses import dataclass, field\n@dataclass\nclass Plan:\n    name: str\n    limit: int = {limit}\n    codes: list = field(default_factory=lambda: [{code}])\n"
STRUCT = "import msgspec\nclass Plan(msgspec.Struct):\n    name: str\n    limit: int = {limit}\n    codes: list = msgspec.field(default_factory=lambda: [{code}])\n"
ENUM = "from enum import Enum\nclass Tier(Enum):\n    LOW = {low}\n    HIGH = 9\n"
WRAPPING = """
import functools
def checked(function):
    @functools.wraps(function)
    def wrapper(request, tables):
        return {call}
    return wrapper
@checked
def policy(request, tables):
    return {value}
"""
FOREIGN_WRAPPER = {
    "site-packages/lib.py": "import functools\ndef checked(f):\n    @functools.wraps(f)\n    def wrapper(*a):\n        return f(*a)\n    return wrapper\n"
}


def with_limits(policy, limit):
    """A policy that finds its limit in another module, and how."""
    return {"policies.py": policy, "limits.py": f"LIMIT = {limit}\n"}


FOUND_ELSEWHERE = {
    "an import in the function": "def policy(request, tables):\n    import limits\n    return limits.LIMIT",
    "a name imported in the function": "def policy(request, tables):\n    from limits import LIMIT\n    return LIMIT",
    "a module by another name": "import limits\ndef policy(request, tables):\n    l = limits\n    return l.LIMIT",
    "an attribute by its name": "import limits\ndef policy(request, tables):\n    return getattr(limits, 'LIMIT')",
    "a module in a closure": "import limits\ndef make(l):\n    def policy(request, tables):\n        return l.LIMIT\n    return policy\npolicy = make(limits)",
    "a module in a dict": "import limits\nALL = {'a': limits}\ndef policy(request, tables):\n    return ALL['a'].LIMIT",
    "a module as a default": "import limits\ndef policy(request, tables, l=limits):\n    return l.LIMIT",
    "a module that is handed on": "import limits\ndef of(l): return l.LIMIT\ndef policy(request, tables):\n    return of(limits)",
}

DIFFERENT = {
    **{how: (with_limits(text, 1), with_limits(text, 2)) for how, text in FOUND_ELSEWHERE.items()},
    "what a module makes up": (
        {
            **with_limits("import limits\n" + POLICY + "limits.ANY", 1),
            "limits.py": "def __getattr__(name): return 1",
        },
        {
            **with_limits("import limits\n" + POLICY + "limits.ANY", 1),
            "limits.py": "def __getattr__(name): return 2",
        },
    ),
    "maps in a chain": tuple(
        with_global(f"ChainMap({{'a': {n}}})", "from collections import ChainMap") for n in (1, 2)
    ),
    "a dict of a library": tuple(
        with_global(f"UserDict({{'a': {n}}})", "from collections import UserDict") for n in (1, 2)
    ),
    "a template": tuple(with_global(f"Template('{n}')", "from string import Template") for n in (1, 2)),
    "an array": tuple(with_global(f"array('i', [{n}])", "from array import array") for n in (1, 2)),
    "a default of a model": tuple(
        returning(
            "Plan().limit",
            before=f"from pydantic import BaseModel\nclass Plan(BaseModel):\n    limit: int = {n}\n",
        )
        for n in (1, 2)
    ),
    "a constant": (returning("1"), returning("2")),
    "an int and a float": (returning("1"), returning("1.0")),
    "an int and a bool": (returning("1"), returning("True")),
    "a text and bytes": (returning("'a'"), returning("b'a'")),
    "zeros": (returning("0.0"), returning("-0.0")),
    "imaginary zeros": (returning("0j"), returning("-0j")),
    "none and an ellipsis": (returning("None"), returning("...")),
    "a tuple of an int and one of a bool": (returning("(1, 2)"), returning("(True, 2)")),
    "a member of a set": (returning("1 in {1, 2, 3}"), returning("1 in {1, 2, 4}")),
    "an operator": (returning("request['a'] + 1"), returning("request['a'] - 1")),
    "a comparison": (returning("request['a'] < 1"), returning("request['a'] <= 1")),
    "the name of a method": (returning("request.get('a')"), returning("request.pop('a')")),
    "a lambda": (returning("(lambda: 1)()"), returning("(lambda: 2)()")),
    "a comprehension": (
        returning("[one + 1 for one in request]"),
        returning("[one + 2 for one in request]"),
    ),
    "what a function handles": (
        {
            "policies.py": "def policy(request, tables):\n    try:\n        f()\n        g()\n    except: pass\n"
        },
        {"policies.py": "def policy(request, tables):\n    f()\n    try:\n        g()\n    except: pass\n"},
    ),
    "a generator": (
        {"policies.py": "def policy(request, tables):\n    yield 1\n"},
        {"policies.py": "async def policy(request, tables):\n    yield 1\n"},
    ),
    "what a function takes": (
        calling("def helper(*given): return given", "helper()"),
        calling("def helper(**given): return given", "helper()"),
    ),
    "a helper": (calling("def helper(r): return 1"), calling("def helper(r): return 2")),
    "a helper that comes later": (
        returning("helper(1)", after="def helper(r): return 1"),
        returning("helper(1)", after="def helper(r): return 2"),
    ),
    "a helper of a helper": (
        calling("def deep(): return 1\ndef helper(r): return (lambda: deep())()"),
        calling("def deep(): return 2\ndef helper(r): return (lambda: deep())()"),
    ),
    "one of two that call each other": (
        calling("def helper(r): return other(r - 1)\ndef other(r): return r and helper(r)"),
        calling("def helper(r): return other(r - 1)\ndef other(r): return r or helper(r)"),
    ),
    "a helper under the name of another": (
        calling("def helper(r): return r\ndef other(r): return -r"),
        calling("def other(r): return r\ndef helper(r): return -r"),
    ),
    "the names of parameters": (
        calling("def helper(a, b): return a - b", "helper(a=1, b=2)"),
        calling("def helper(b, a): return b - a", "helper(a=1, b=2)"),
    ),
    "a default": (calling("def helper(r, n=1): return n"), calling("def helper(r, n=2): return n")),
    "a keyword default": (
        calling("def helper(r, *, n=1): return n"),
        calling("def helper(r, *, n=2): return n"),
    ),
    "an attribute of a function": (
        calling("def helper(r): return helper.n\nhelper.n = 1"),
        calling("def helper(r): return helper.n\nhelper.n = 2"),
    ),
    "what is closed over": tuple(
        {
            "policies.py": f"def made(n):\n    def policy(r, t): return n\n    return policy\npolicy = made({n})\n"
        }
        for n in (1, 2)
    ),
    "a function that is closed over": tuple(
        {
            "policies.py": f"def made(f):\n    def policy(r, t): return f(r)\n    return policy\npolicy = made(lambda r: {n})\n"
        }
        for n in (1, 2)
    ),
    "a global": (with_global("1"), with_global("2")),
    "a global that is there": (returning("LIMIT"), with_global("1")),
    "a global that a lambda refers to": tuple(
        returning("(lambda: LIMIT)()", before=f"LIMIT = {n}") for n in (1, 2)
    ),
    "a global in place of a builtin": (returning("len(request)"), calling("def len(r): return 1", "len(r)")),
    "a list": (with_global("[1, 2]"), with_global("[2, 1]")),
    "a list and a tuple": (with_global("[1, 2]"), with_global("(1, 2)")),
    "how a list is nested": (with_global("[[1], 2]"), with_global("[[1, 2]]")),
    "a value in a dict": (with_global("{'a': {'b': 1}}"), with_global("{'a': {'b': 2}}")),
    "the order of a dict": (with_global("{1: 1, 2: 2}"), with_global("{2: 2, 1: 1}")),
    "a set": (with_global("{'a', 'b'}"), with_global("{'a', 'c'}")),
    "a set and a frozenset": (with_global("{1}"), with_global("frozenset({1})")),
    "a function in a set": (with_global("{lambda: 1, lambda: 2}"), with_global("{lambda: 1, lambda: 3}")),
    "a pattern": (with_global("re.compile('a')", "import re"), with_global("re.compile('b')", "import re")),
    "the flags of a pattern": tuple(
        with_global(f"re.compile('a', {flags})", "import re") for flags in ("0", "re.I")
    ),
    "a moment": tuple(
        with_global(f"datetime(2026, 1, {d})", "from datetime import datetime") for d in (1, 2)
    ),
    "the zone of a moment": tuple(
        with_global(f"datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours={h})))", "from datetime import *")
        for h in (1, 2)
    ),
    "a date": tuple(with_global(f"date(2026, 1, {d})", "from datetime import date") for d in (1, 2)),
    "a length of time": tuple(
        with_global(f"timedelta(days={d})", "from datetime import timedelta") for d in (1, 2)
    ),
    "a decimal": tuple(
        with_global(f"Decimal('{d}')", "from decimal import Decimal") for d in ("1.0", "1.00")
    ),
    "a uuid": tuple(with_global(f"UUID(int={n})", "from uuid import UUID") for n in (1, 2)),
    "a path": tuple(with_global(f"Path('{p}')", "from pathlib import Path") for p in ("a/b", "a/c")),
    "a range": (with_global("range(1, 9)"), with_global("range(1, 8)")),
    "a deque": tuple(with_global(f"deque([1, {n}])", "from collections import deque") for n in (2, 3)),
    "a default of a dict": tuple(
        with_global(f"defaultdict(lambda: {n})", "from collections import defaultdict") for n in (1, 2)
    ),
    "a dict behind a view": tuple(
        with_global(f"MappingProxyType({{'a': {n}}})", "from types import MappingProxyType") for n in (1, 2)
    ),
    "a namespace": tuple(
        with_global(f"SimpleNamespace(a={n})", "from types import SimpleNamespace") for n in (1, 2)
    ),
    "a named tuple": tuple(
        with_global(f"P({n})", "from collections import namedtuple\nP = namedtuple('P', 'a')") for n in (1, 2)
    ),
    "a text of the user's own type": (
        with_global("Code('a')", "class Code(str): pass"),
        with_global("Code('b')", "class Code(str): pass"),
    ),
    "a decimal of the user's own type": tuple(
        with_global(f"Amount('{n}')", "from decimal import Decimal\nclass Amount(Decimal): pass")
        for n in (1, 2)
    ),
    "a date of the user's own type": tuple(
        with_global(f"Day(2026, 1, {n})", "from datetime import date\nclass Day(date): pass") for n in (1, 2)
    ),
    "a class of another name": (
        with_global("A('a')", "class A(str): pass"),
        with_global("B('a')", "class B(str): pass"),
    ),
    "a value of an enum": tuple(returning("Tier.LOW", before=ENUM.format(low=n)) for n in (1, 2)),
    "another member of an enum": tuple(with_global(f"Tier.{n}", ENUM.format(low=1)) for n in ("LOW", "HIGH")),
    "a member of another's enum": tuple(
        with_global(f"PlistFormat.FMT_{n}", "from plistlib import PlistFormat") for n in ("XML", "BINARY")
    ),
    "an attribute of a class": tuple(
        returning("Plan().fits(1)", before=CLASS.format(limit=n, sign="<")) for n in (1, 2)
    ),
    "a method": tuple(returning("Plan().fits(1)", before=CLASS.format(limit=1, sign=s)) for s in "<>"),
    "a method of a base": tuple(
        returning("Own().fits(1)", before=CLASS.format(limit=1, sign=s) + "class Own(Plan): pass")
        for s in "<>"
    ),
    "a property": tuple(
        returning("P().a", before=f"class P:\n    @property\n    def a(self): return {n}") for n in (1, 2)
    ),
    "a cached property": tuple(
        returning(
            "P().a",
            before=f"from functools import cached_property\nclass P:\n    @cached_property\n    def a(self): return {n}",
        )
        for n in (1, 2)
    ),
    "a static method": tuple(
        returning("P.a()", before=f"class P:\n    @staticmethod\n    def a(): return {n}") for n in (1, 2)
    ),
    "a class method": tuple(
        returning("P.a()", before=f"class P:\n    @classmethod\n    def a(cls): return {n}") for n in (1, 2)
    ),
    "a method with underscores": tuple(
        returning("P()()", before=f"class P:\n    def __call__(self): return {n}") for n in (1, 2)
    ),
    "an attribute of an object": tuple(
        with_global("Plan()", CLASS.format(limit=1, sign="<") + f"Plan.extra = {n}") for n in (1, 2)
    ),
    "a slot of an object": tuple(with_global(f"Plan({n})", SLOTTED) for n in (1, 2)),
    "the default of a dataclass": tuple(
        returning("Plan('a')", before=DATACLASS.format(limit=n, code=1)) for n in (1, 2)
    ),
    "what makes a default of a dataclass": tuple(
        returning("Plan('a')", before=DATACLASS.format(limit=1, code=n)) for n in (1, 2)
    ),
    "a field of a dataclass": tuple(
        with_global(f"Plan('a', {n})", DATACLASS.format(limit=1, code=1)) for n in (1, 2)
    ),
    "the default of a struct": tuple(
        returning("Plan('a')", before=STRUCT.format(limit=n, code=1)) for n in (1, 2)
    ),
    "what makes a default of a struct": tuple(
        returning("Plan('a')", before=STRUCT.format(limit=1, code=n)) for n in (1, 2)
    ),
    "a field of a struct": tuple(
        with_global(f"Plan('a', {n})", STRUCT.format(limit=1, code=1)) for n in (1, 2)
    ),
    "the object of a bound method": tuple(
        {
            "policies.py": f"class P:\n    def __init__(self, n): self.n = n\n    def check(self, r, t): return self.n\npolicy = P({n}).check\n"
        }
        for n in (1, 2)
    ),
    "the object of a builtin method": tuple(
        returning("rate('a')", before=f"rate = {{'a': {n}}}.get") for n in (1, 2)
    ),
    "another builtin": (with_global("min"), with_global("max")),
    "another builtin method": (with_global("str.upper"), with_global("str.lower")),
    "another function of the standard library": (
        with_global("quote", "from urllib.parse import quote"),
        with_global("quote", "from urllib.parse import unquote as quote"),
    ),
    "another function of the standard library that takes the same": (
        with_global("part", "from os.path import basename as part"),
        with_global("part", "from os.path import dirname as part"),
    ),
    "what a getter gets": tuple(
        with_global(f"itemgetter('{n}')", "from operator import itemgetter") for n in "ab"
    ),
    "an argument of a partial": tuple(
        with_global(f"partial(int, base={n})", "from functools import partial") for n in (8, 16)
    ),
    "the function of a partial": tuple(
        with_global(f"partial(lambda: {n})", "from functools import partial") for n in (8, 16)
    ),
    "what is cached": tuple(
        calling(f"@cache\ndef helper(r): return {n}", before="from functools import cache") for n in (1, 2)
    ),
    "what is dispatched to": tuple(
        calling(
            f"@singledispatch\ndef helper(r): return 1\n@helper.register(int)\ndef _(r): return {n}",
            before="from functools import singledispatch",
        )
        for n in (1, 2)
    ),
    "what is wrapped": tuple(
        {"policies.py": WRAPPING.format(call="function(request, tables)", value=n)} for n in (1, 2)
    ),
    "what wraps": tuple(
        {"policies.py": WRAPPING.format(call=c, value=1)}
        for c in ("function(request, tables)", "not function(request, tables)")
    ),
    "what is wrapped by another's wrapper": tuple(
        FOREIGN_WRAPPER
        | {"policies.py": f"import lib\n@lib.checked\ndef policy(request, tables): return {n}\n"}
        for n in (1, 2)
    ),
    **{
        f"a function of another module, called by {call}": tuple(
            with_package(f"def rate(n): return n * {n}", call) for n in (1, 2)
        )
        for call in ("rate(1)", "prices.rate(1)", "shop.prices.rate(1)", "(lambda: prices.rate)()(1)")
    },
    "a value of another module": tuple(with_package(f"rate = {n}", "prices.rate") for n in (1, 2)),
    "a module of another name": (
        with_global("json", "import json"),
        with_global("json", "import csv as json"),
    ),
    "an installed helper of the same package": tuple(
        {
            "policies.py": "from shop.policies import policy",
            "site-packages/shop/__init__.py": "",
            "site-packages/shop/policies.py": f"from shop.prices import rate\n{POLICY}rate(1)",
            "site-packages/shop/prices.py": f"def rate(n): return n * {n}",
        }
        for n in (1, 2)
    ),
}

DOCUMENTED = '''
def policy(request, tables):
    """{}"""
    def inner(a):
        """{}"""
        return a
    return inner(request["a"]) or Plan
class Plan:
    """{}"""
    def check(self):
        """{}"""
'''

SAME = {
    "something else in a module from which a name is taken": (
        with_limits("import limits\n" + POLICY + "limits.LIMIT", "1\nOTHER = 1"),
        with_limits("import limits\n" + POLICY + "limits.LIMIT", "1\nOTHER = 2"),
    ),
    "something else in a module from which a name is imported in the function": (
        with_limits(FOUND_ELSEWHERE["a name imported in the function"], "1\nOTHER = 1"),
        with_limits(FOUND_ELSEWHERE["a name imported in the function"], "1\nOTHER = 2"),
    ),
    "what a docstring says": tuple(
        {"policies.py": DOCUMENTED.format(*4 * [t])} for t in ("One.", "Two.\n\nThree.")
    ),
    "whether there is a docstring": (
        {
            "policies.py": 'def policy(request, tables):\n    """Says."""\n    if request: return None\n    return 1'
        },
        {"policies.py": "def policy(request, tables):\n    if request: return None\n    return 1"},
    ),
    "comments and blank lines": (
        {
            "policies.py": "def policy(request, tables):\n    if request:\n        pass\n    return {\n        1: 2}"
        },
        {
            "policies.py": "# a\ndef policy(request, tables):\n\n    # b\n    if request:  # c\n\n        pass\n    # d\n\n    return {  # e\n\n        1: 2}"
        },
    ),
    "annotations": (
        {"policies.py": "def policy(request, tables): return 1"},
        {"policies.py": "def policy(request: dict, tables: 'Tables') -> None: return 1"},
    ),
    "how annotations are kept": (
        {"policies.py": "def policy(request: dict, tables): return 1"},
        {"policies.py": "from __future__ import annotations\ndef policy(request: dict, tables): return 1"},
    ),
    "the name of a local": (
        {"policies.py": "def policy(request, tables):\n    a = request['a']\n    return a + a"},
        {"policies.py": "def policy(request, tables):\n    b = request['a']\n    return b + b"},
    ),
    "a global that it does not refer to": (
        returning("1", before="LIMIT = 1"),
        returning("1", before="LIMIT = 2"),
    ),
    "a function that it does not refer to": (
        returning("1", after="def f(): 1"),
        returning("1", after="def f(): 2"),
    ),
    "how the members of a set are written": (
        with_global("{'a', 'b', 'c', ('d', 1)}"),
        with_global("{('d', 1), 'c', 'b', 'a'}"),
    ),
    "how the members of a constant set are written": (
        returning("1 in {'a', 'b', 'c', 2}"),
        returning("1 in {2, 'c', 'b', 'a'}"),
    ),
    "the order of attributes": tuple(
        with_global(f"SimpleNamespace({fields})", "from types import SimpleNamespace")
        for fields in ("a=1, b=2", "b=2, a=1")
    ),
    "the inside of an installed package": (
        with_package("def rate(n): return n", folder="site-packages/"),
        with_package("def rate(n): return 2 * n", folder="site-packages/"),
    ),
    "the inside of what cannot be looked into": tuple(
        with_global(f"Opaque({n})", "from lib import Opaque")
        | {"site-packages/lib.py": "class Opaque:\n    def __init__(self, n): self.n = n"}
        for n in (1, 2)
    ),
    "what a wrapper names and does not call": tuple(
        {"policies.py": WRAPPING.format(call="None", value=n)} for n in (1, 2)
    ),
    "where a module is": (returning("__file__"), returning("__file__")),
    "whether equal patterns are one object": tuple(
        returning("(A, B)", before=f"import re\nA = re.compile('a')\n{purge}\nB = re.compile('a')")
        for purge in ("", "re.purge()")
    ),
}

EASILY_UNSTEADY = {
    "an object without a name": with_global("object()"),
    "a lock": with_global("Lock()", "from threading import Lock"),
    "a logger": with_global("getLogger('a')", "from logging import getLogger"),
    "an object of a class without a repr": with_global("P()", "class P: pass"),
    "functions in a set": with_global("{lambda: 1, lambda: 2, lambda: LIMIT}"),
    "members of an enum in a set": with_global("{Tier.LOW, Tier.HIGH}", ENUM.format(low=1)),
    "types in a set": with_global("{int, str, Plan}", CLASS.format(limit=1, sign="<")),
    "a set that a member refers to": with_global("{f}", "def f(): return LIMIT"),
    "a set of sets": with_global("{frozenset('abc'), frozenset('bcd'), frozenset(), 'a'}"),
    "a list that holds itself": {"policies.py": f"LIMIT = [1]\nLIMIT.append(LIMIT)\n{POLICY}LIMIT"},
    "an abstract class": with_global(
        "P", "import abc\nclass P(abc.ABC):\n    @abc.abstractmethod\n    def a(self): 1"
    ),
    "a model of pydantic": with_global(
        "P(a=1)", "import pydantic\nclass P(pydantic.BaseModel):\n    a: int\n    b: 'P | None' = None"
    ),
    "a flag": with_global("F.A | F.B", "from enum import Flag\nclass F(Flag):\n    A = 1\n    B = 2"),
    "a stream": with_global("sys.stderr", "import sys"),
    "a weak reference": with_global("weakref.ref(P)", "import weakref\nclass P: pass"),
    "a bound method of an object": {
        "policies.py": "class P:\n    def check(self, r, t): return self\npolicy = P().check"
    },
}
