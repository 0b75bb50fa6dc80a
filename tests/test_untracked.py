"""Untracked reads: what a policy names that no version tells of is pointed out, and nothing else is."""

import importlib
import logging
import sys
import time

import pytest

from shelflife.apis.acme.policies import POLICIES as ACME_POLICIES
from shelflife.apis.meetings.policies import POLICIES as MEETING_POLICIES
from shelflife.apis.payouts.policies import POLICIES as PAYOUT_POLICIES
from shelflife.apis.recipes.policies import POLICIES as RECIPE_POLICIES
from shelflife.policy_code import PolicyCode
from shelflife.server import Provider, UsageError, fix

IMPORTS = """
import contextvars, datetime, functools, http, ipaddress, itertools, json, logging, os, pathlib, random, re
import secrets, socket, sqlite3, subprocess, time, urllib.parse, urllib.request, uuid
from datetime import date, timedelta, timezone
from datetime import datetime as moment
from decimal import Decimal
from os import environ, getenv
from random import choice
from time import time as now
import httpx
NUMBERS, EACH = itertools.count(), (number for number in range(9))
"""
POLICY = "def policy(request, tables):\n    return "
LINE = IMPORTS.count("\n") + 2
"""The line of what a policy returns when nothing else is in the file."""


@pytest.fixture
def untracked(tmp_path, monkeypatch):
    """What the policy of a file reads that no version tells of."""

    def load(text):
        (tmp_path / "shop_policies.py").write_text(IMPORTS + text, "utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "shop_policies", raising=False)
        return PolicyCode(importlib.import_module("shop_policies").policy).untracked

    return load


READS = {
    "time.time()": "the clock",
    "time.monotonic_ns()": "the clock",
    "now()": "the clock",
    "moment.now(timezone.utc)": "the clock",
    "datetime.datetime.utcnow()": "the clock",
    "date.today()": "the clock",
    "random.random()": "a random value",
    "choice([1, 2])": "a random value",
    "random.Random()": "a random value",
    "uuid.uuid4()": "a random value",
    "os.urandom(2)": "a random value",
    "secrets.token_hex()": "a random value",
    "os.environ['RATE']": "the environment",
    "environ.get('RATE')": "the environment",
    "os.getenv('RATE')": "the environment",
    "getenv('RATE')": "the environment",
    "socket.create_connection(('a', 1))": "the network",
    "urllib.request.urlopen('http://a')": "the network",
    "httpx.get('http://a')": "the network",
    "open('rates.json')": "a file",
    "pathlib.Path('rates.json').read_text()": "a file",
    "os.path.exists('rates.json')": "a file",
    "subprocess.check_output(['date'])": "another program",
    "time.strftime('%H')": "the clock",
    "time.localtime()": "the clock",
    "hash('a')": "what is another in each process",
    "id(tables)": "what is another in each process",
    "sqlite3.connect('rates.db')": "a database",
}


@pytest.mark.parametrize(("name", "kind"), [("NUMBERS", "itertools.count"), ("EACH", "builtins.generator")])
def test_what_changes_as_it_is_read_is_named(untracked, name, kind):
    assert untracked(f"{POLICY}next({name})") == [f"it reads what changes as it is read (by a {kind})"]


def test_a_fix_of_a_policy_that_reads_the_clock_is_not_to_be_kept():
    provider = Provider({"codes": {"a": {"code": "A"}}})

    @provider.policy
    def of_the_hour(request, tables):
        return fix("USE", code=tables.codes["a"]["code"]) if time.time() > 0 else None

    [violation] = provider.violations({})
    assert violation.suggestion.cache_hint == "recompute"


@pytest.mark.parametrize("expression", READS)
def test_what_no_version_tells_of_is_named_with_its_place(untracked, expression):
    [told] = untracked(POLICY + expression)
    assert told.startswith(f"shop_policies.py:{LINE} reads {READS[expression]} (")


FOUND_ELSEWHERE = {
    "a helper": "def helper(): return time.time()\n" + POLICY + "helper()",
    "a helper that comes later": POLICY + "helper()\ndef helper(): return time.time()",
    "a helper of a helper": "def deep(): return time.time()\ndef helper(): return deep()\n"
    + POLICY
    + "helper()",
    "a method": "class Rates:\n    def at(self): return time.time()\nrates = Rates()\n"
    + POLICY
    + "rates.at()",
    "a static method": "class Rates:\n    @staticmethod\n    def at(): return now()\n"
    + POLICY
    + "Rates.at()",
    "a wrapper": "def timed(f):\n    @functools.wraps(f)\n    def wrapper(*a):\n        return f(*a), now()\n"
    "    return wrapper\n@timed\n" + POLICY + "1",
    "what is wrapped": "def passed(f):\n    @functools.wraps(f)\n    def wrapper(*a):\n        return f(*a)\n"
    "    return wrapper\n@passed\n" + POLICY + "now()",
    "an import in the function": "def policy(request, tables):\n    import time as t\n    return t.time()",
    "a name imported in the function": "def policy(request, tables):\n    from time import time as t\n    return t()",
    "a nested function": "def policy(request, tables):\n    def inner(): return now()\n    return inner()",
    "a comprehension": POLICY + "[now() for _ in request]",
}


@pytest.mark.parametrize("where", FOUND_ELSEWHERE)
def test_it_is_found_wherever_the_policy_leads(untracked, where):
    [told] = untracked(FOUND_ELSEWHERE[where])
    assert " reads the clock (" in told


OBJECTS = {
    "a client in an object": (
        "class Rates:\n    def __init__(self): self.client = httpx.Client()\n"
        "    def of(self, plan): return self.client.get(plan)\nrates = Rates()\n" + POLICY + "rates.of('a')",
        "it reads the network (by a httpx.Client)",
    ),
    "a context variable": (
        "tenant = contextvars.ContextVar('tenant')\n" + POLICY + "tenant.get()",
        f"shop_policies.py:{LINE + 1} reads a context variable (tenant)",
    ),
}


@pytest.mark.parametrize("what", OBJECTS)
def test_an_object_counts_by_its_type(untracked, what):
    text, expected = OBJECTS[what]
    assert untracked(text) == [expected]


CHANGED = {
    "a memo": ("kept = {}\ndef policy(request, tables):\n    kept[1] = 2\n    return kept", "kept", "policy"),
    "a count": ("kept = {'n': 0}\ndef policy(request, tables):\n    kept['n'] += 1", "kept", "policy"),
    "a method that changes": (
        "kept = []\ndef policy(request, tables):\n    kept.append(1)",
        "kept",
        "policy",
    ),
    "a default that is set": ("kept = {}\n" + POLICY + "kept.setdefault(1, 2)", "kept", "policy"),
    "a global that is set": (
        "rate = 1\ndef refresh():\n    global rate\n    rate = 2\n" + POLICY + "rate",
        "rate",
        "refresh",
    ),
    "what another function fills": (
        "rates = {}\ndef refresh(): rates.update(a=1)\n" + POLICY + "rates['a']",
        "rates",
        "refresh",
    ),
    "what a method fills": (
        "rates = {}\nclass Job:\n    def run(self):\n        rates['a'] = 1\n" + POLICY + "rates['a']",
        "rates",
        "run",
    ),
    "an attribute of a class": (
        "class Rates:\n    kept = {}\ndef policy(request, tables):\n    Rates.kept['a'] = 1",
        "Rates",
        "policy",
    ),
    "what is closed over": (
        "def made():\n    kept = []\n    def policy(request, tables):\n        kept.append(1)\n    return policy\n"
        "policy = made()",
        "kept",
        "policy",
    ),
    "a count that is closed over": (
        "def made():\n    n = 0\n    def policy(request, tables):\n        nonlocal n\n        n = n + 1\n"
        "    return policy\npolicy = made()",
        "n",
        "policy",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_value_that_something_changes_is_named_with_what_does(untracked, what):
    text, name, changing = CHANGED[what]
    [told] = untracked(text)
    assert told.endswith(f" reads {name}, which {changing} changes")


HARMLESS = {
    "constants": "LIMITS = {'a': [1]}\nNAMES = {'b'}\n" + POLICY + "LIMITS['a'], 'b' in NAMES",
    "a constant that the module makes": "LIMITS = {}\nLIMITS['a'] = 1\nLIMITS.update(b=2)\n"
    + POLICY
    + "LIMITS",
    "other parts of such modules": POLICY
    + "moment.fromisoformat('2026-01-01') + timedelta(1), date(2026, 1, 1), uuid.UUID(int=1),"
    " secrets.compare_digest('a', 'b'), os.path.join('a', 'b'), urllib.parse.quote('a'), time.strptime('1', '%d'),"
    " http.HTTPStatus.OK, ipaddress.ip_address('::1')",
    "plain computing": POLICY
    + "json.dumps(1), re.compile('a').match('a'), Decimal('1'), len(request), sorted([1])",
    "a logger": "log = logging.getLogger('shop')\ndef policy(request, tables):\n    log.info('a')",
    "its own values": "def policy(request, tables):\n    found = {}\n    found['a'] = 1\n    found.update(b=2)\n"
    "    names = []\n    names.append(1)\n    def inner():\n        found['c'] = 3\n    return found",
    "names of its own": "def policy(request, tables):\n    time, random = request['time'], request['random']\n"
    "    return time.time, random.random",
    "names of arguments": "def helper(time, environ): return time.time, environ\n"
    + POLICY
    + "helper(request, 1)",
    "a method that it does not call": "class Plan:\n    def age(self): return now()\n    def limit(self): return 1\n"
    "plan = Plan()\n" + POLICY + "plan.limit()",
    "a function that it does not call": "def age(): return now()\n" + POLICY + "1",
    "a memo of a pure function": "@functools.cache\ndef parsed(text): return text.split()\n"
    + POLICY
    + "parsed('a')",
    "what it reports itself": "def policy(request, tables):\n    tables.report_untracked('the time')\n    return now()",
    "what a helper reports": "def at(tables):\n    tables.report_untracked('the time')\n    return now()\n"
    + POLICY
    + "at(tables)",
}


@pytest.mark.parametrize("what", HARMLESS)
def test_nothing_else_is_named(untracked, what):
    assert untracked(HARMLESS[what]) == []


@pytest.mark.parametrize(
    "policy",
    [*ACME_POLICIES, *MEETING_POLICIES, *PAYOUT_POLICIES, *RECIPE_POLICIES],
    ids=lambda policy: policy.__name__,
)
def test_the_reference_apis_read_nothing_of_the_kind(policy):
    assert PolicyCode(policy).untracked == []


@pytest.mark.parametrize("policy", [len, str.join, eval("lambda request, tables: now()")])
def test_what_has_no_source_shows_nothing(policy):
    assert PolicyCode(policy).untracked == []


def timed(request, tables):
    return fix("AT", at=logging.time.time(), code=tables.plans["a"]["code"])


def provider_with(policy, **settings):
    provider = Provider({"plans": {"a": {"code": 1}}}, **settings)
    provider.policy(policy)
    return provider


def test_the_log_is_warned_once_before_the_first_request(caplog):
    provider = provider_with(timed)
    assert not caplog.records
    provider.be_ready()
    provider.close()
    provider_with(timed).be_ready()
    [record] = caplog.records
    assert (record.name, record.levelname) == ("shelflife", "WARNING")
    line = timed.__code__.co_firstlineno + 1
    assert record.message == (
        f"the policy timed: test_untracked.py:{line} reads the clock (logging.time.time), and no version tells when"
        " that changes: put that into a table or into the request, or have the policy call tables.report_untracked"
    )


def test_with_strict_policies_an_app_does_not_start():
    with pytest.raises(UsageError, match=r"the policy timed: .* reads the clock"):
        provider_with(timed, strict_policies=True).be_ready()


def test_a_policy_with_a_version_is_not_looked_at(caplog):
    provider = Provider({"plans": {}}, strict_policies=True)
    provider.policy(version="1")(timed)
    provider.be_ready()
    assert not caplog.records


def remembering():
    kept = {}

    def policy(request, tables):
        plan = request["plan"]
        if plan in tables.plans and plan not in kept:
            kept[plan] = tables.codes[plan]["code"]
        return fix("USE", code=kept[plan])

    return policy


def keeping_a_view():
    kept = []

    def policy(request, tables):
        kept.append(tables.codes)
        return fix("USE", code=kept[0]["a"]["code"], limit=tables.plans["a"]["limit"])

    return policy


def keeping_the_request():
    kept = []

    def policy(request, tables):
        kept.append(request)
        return fix("USE", plan=kept[0]["plan"], limit=tables.plans["a"]["limit"])

    return policy


class Memo:
    """An object of the user's that a policy keeps values in, out of sight."""

    def __init__(self):
        self.codes = {}

    def code_of(self, plan, tables):
        if plan not in self.codes:
            self.codes[plan] = tables.codes[plan]["code"]
        return self.codes[plan]

    def policy(self, request, tables):
        return fix("USE", code=self.code_of(request["plan"], tables), limit=tables.plans["a"]["limit"])


def calling_an_object():
    memo = Memo()
    return lambda request, tables: memo.policy(request, tables)


def with_a_default():
    def policy(request, tables, kept={}):  # noqa: B006
        kept.setdefault("code", tables.codes["a"]["code"])
        return fix("USE", code=kept["code"], limit=tables.plans["a"]["limit"])

    return policy


@pytest.mark.spec("3.3")
@pytest.mark.parametrize(
    "make",
    [
        remembering,
        keeping_a_view,
        keeping_the_request,
        lambda: Memo().policy,
        calling_an_object,
        with_a_default,
    ],
)
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_fix_from_what_was_kept_of_an_earlier_run_is_not_to_be_kept(make, is_warm, caplog):
    provider = Provider({"plans": {"a": {"limit": 1}}, "codes": {"a": {"code": "A"}}})
    policy = make()
    provider.policy(policy)
    if is_warm:
        provider.violations({"plan": "a"})
    [violation] = provider.violations({"plan": "a"})
    assert violation.suggestion.cache_hint == "recompute"
    told = [
        record.message
        for record in caplog.records
        if "is not what it was when the policy was" in record.message
    ]
    assert len(told) == 1


def test_a_global_that_others_change_makes_a_fix_one_not_to_be_kept(monkeypatch):
    provider = provider_with(rated)
    assert provider.violations({})[0].suggestion.cache_hint == "cacheable"
    monkeypatch.setitem(RATES, "a", 2)
    assert provider.violations({})[0].suggestion.cache_hint == "recompute"


RATES = {"a": 1}


def rated(request, tables):
    return fix("RATE", rate=RATES["a"], code=tables.plans["a"]["code"])


def test_what_a_policy_refers_to_may_be_anything():
    odd = type(
        "Odd", (), {"__getattribute__": lambda self, name: 1 / 0, "__eq__": lambda self, other: 1 / 0}
    )()
    provider = provider_with(
        lambda request, tables: fix("F", code=tables.plans["a"]["code"]) if odd else None
    )
    assert provider.violations({})[0].suggestion.cache_hint == "cacheable"
