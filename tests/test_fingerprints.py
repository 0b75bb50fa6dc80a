"""Fingerprints: another one when a policy may say something else, and the same one in every process."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife import fingerprints
from shelflife.fingerprints import fingerprint
from tests.policy_sources import DIFFERENT, EASILY_UNSTEADY, SAME

CHILD = """
import importlib, json, pathlib, sys
from shelflife.fingerprints import fingerprint

folder, padding = pathlib.Path(sys.argv[1]), sys.argv[2]
prints = {}
for case, files in json.load(sys.stdin).items():
    for name, text in files.items():
        path = folder / case / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(padding + text, "utf-8")
    before = set(sys.modules)
    sys.path[:0] = [str(folder / case), str(folder / case / "site-packages")]
    prints[case] = fingerprint(importlib.import_module("policies").policy)
    del sys.path[:2]
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
json.dump(prints, sys.stdout)
"""

PROCESSES = {
    "one": ("0", "here", ""),
    "another": ("1", "over/there", "\n\n# a comment\n\n\n"),
    "one that has it compiled": ("2", "over/there", ""),
}


@pytest.fixture(scope="module")
def prints(tmp_path_factory):
    """The fingerprint of every source, from each of three processes."""
    folder = tmp_path_factory.mktemp("sources")
    sources = {f"steady {name}": files for name, files in EASILY_UNSTEADY.items()}
    for name, pair in (DIFFERENT | SAME).items():
        sources |= {f"{name} {side}": files for side, files in zip("ab", pair, strict=True)}
    found = {}
    for process, (seed, place, padding) in PROCESSES.items():
        ran = subprocess.run(
            [sys.executable, "-c", CHILD, str(folder / place), padding],
            input=json.dumps(sources if seed == "0" else dict(reversed(sources.items()))),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        found[process] = json.loads(ran.stdout)
    return found


def test_every_process_has_the_same_fingerprints(prints):
    first, *others = prints.values()
    assert {name: [other[name] for other in others] for name in first} == {
        name: [print] * len(others) for name, print in first.items()
    }


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_may_change_its_word_changes_its_fingerprint(prints, what):
    assert prints["one"][f"{what} a"] != prints["another"][f"{what} b"]


@pytest.mark.parametrize("what", SAME)
def test_what_cannot_change_its_word_does_not_change_its_fingerprint(prints, what):
    assert prints["one"][f"{what} a"] == prints["another"][f"{what} b"]


def test_it_is_twelve_hex_digits(prints):
    assert all(len(print) == 12 and int(print, 16) >= 0 for print in prints["one"].values())


def over(value):
    """A policy that closes over a value."""

    def policy(request, tables):
        return value

    return policy


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.text(max_size=2)
    | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(plain, plain)
def test_values_have_the_same_fingerprint_when_they_are_written_the_same(one, other):
    assert (fingerprint(over(one)) == fingerprint(over(other))) == (repr(one) == repr(other))


@given(st.lists(st.integers() | st.text(max_size=3) | st.tuples(st.integers())), st.randoms())
def test_the_order_in_which_a_set_was_filled_does_not_count(members, random):
    shuffled = random.sample(members, len(members))
    assert fingerprint(over(set(members))) == fingerprint(over(set(shuffled)))


def test_a_policy_that_has_run_hot_has_the_fingerprint_it_had():
    def policy(request, tables):
        return [request["a"] + one.real for one in (1, 2) if one < len(tables)]

    cold = fingerprint(policy)
    for _ in range(5000):
        policy({"a": 1}, {})
    assert fingerprint(policy) == cold


def test_a_policy_that_is_traced_has_the_fingerprint_it_had():
    policy = over(1)
    untraced = fingerprint(policy)
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        policy({}, {})
        assert fingerprint(policy) == untraced
    finally:
        sys.settrace(before)


class Called(BaseException):
    """Code of the user has run; nothing that handles an Exception hides it."""


def call(*args, **fields):
    raise Called


HOOKS = (
    "__getattribute__ __getattr__ __setattr__ __eq__ __hash__ __repr__ __str__ __len__ __iter__ __getitem__ __contains__"
    " __bool__ __call__ __reduce__ __reduce_ex__ __getstate__ __index__ __sizeof__ __dir__ items keys values get"
).split()
HOSTILE = dict.fromkeys(HOOKS, call) | {"__class__": property(call), "wanted": property(call)}


HostileMeta = type(
    "HostileMeta",
    (type,),
    dict.fromkeys([*HOOKS, "__instancecheck__", "__subclasscheck__"], call)
    | dict.fromkeys(["__module__", "__name__", "__mro__", "__bases__", "__dict__"], property(call)),
)


class NeverFilled:
    __slots__ = ("slot",)


def holding_itself(collection, add):
    add(collection, collection)
    return collection


def nested(kind, depth):
    value = kind()
    for _ in range(depth):
        value = kind([value])
    return value


def over_an_empty_cell():
    def policy(request, tables):
        return later

    if not policy:
        later = 1
    return policy


HOSTILE_OBJECTS = {
    "an object": lambda: type("Hostile", (), HOSTILE)(),
    **{
        f"a {base.__name__}": lambda base=base: type("Hostile", (base,), HOSTILE)()
        for base in (str, bytes, int, float, tuple, list, dict, set, frozenset)
    },
    "a class": lambda: HostileMeta("Hostile", (), {}),
    "an object of such a class": lambda: type.__call__(HostileMeta("Hostile", (), {})),
    "a dictionary that is a property": lambda: type("P", (), {"__dict__": property(lambda self: 1 / 0)})(),
    "a module that is a number": lambda: type("P", (), {"__module__": 3})(),
    "no module": lambda: eval("type('Stray', (), {})()", {}),
    "an empty slot": NeverFilled,
    "an empty cell": over_an_empty_cell,
    "a list that holds itself": lambda: holding_itself([], list.append),
    "a dict that holds itself": lambda: holding_itself({}, lambda one, other: one.update(a=other)),
    "a deep list": lambda: nested(list, 50_000),
    "a deep tuple": lambda: nested(tuple, 50_000),
    "a deep set": lambda: nested(frozenset, 900),
    "a text that is none": lambda: "\ud800",
    "an int of many digits": lambda: 10**5000,
    "a lock": threading.Lock,
    "a generator": lambda: (one for one in ()),
    "code": lambda: over(1).__code__,
    "a function without a home": lambda: eval("lambda: wanted", {}),
    "a module that is no module": lambda: dict([*sys.modules.items()][:50]),
}


@pytest.mark.parametrize("what", HOSTILE_OBJECTS)
def test_no_object_is_too_odd_and_none_is_asked(what):
    make = HOSTILE_OBJECTS[what]
    assert fingerprint(over(make())) == fingerprint(over(make()))


@pytest.mark.parametrize("what", HOSTILE_OBJECTS)
def test_what_is_beside_an_odd_object_counts_all_the_same(what):
    make = HOSTILE_OBJECTS[what]
    assert fingerprint(over([make(), 1])) != fingerprint(over([make(), 2]))


@pytest.mark.parametrize(
    "odd", [None, 3, "text", len, int, object(), [].append, str.join], ids=lambda odd: type(odd).__name__
)
def test_what_is_no_function_has_one_too(odd):
    assert fingerprint(odd) == fingerprint(odd)


BOUND = 5_000
"""In place of 100,000: looking at so many values took half of the time of these tests."""
ROOM = BOUND - 10


@pytest.fixture
def bound(monkeypatch):
    monkeypatch.setattr(fingerprints, "MOST_VALUES", BOUND)


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize("kind", [list, tuple, set, lambda numbers: dict.fromkeys([*numbers][: ROOM // 2])])
def test_a_table_within_the_bound_counts_completely(kind):
    assert fingerprint(over(kind(range(ROOM)))) != fingerprint(over(kind([-1, *range(1, ROOM)])))


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize("kind", [list, tuple, set, dict.fromkeys])
def test_a_table_beyond_the_bound_counts_by_its_type_and_length(kind):
    whole, changed, longer = (
        fingerprint(over(kind(range(*ends)))) for ends in ((BOUND + 1,), (1, BOUND + 2), (BOUND + 2,))
    )
    assert (whole == changed, whole == longer) == (True, False)


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize(
    ("row", "count"),
    [(lambda n: [n] * 9, BOUND // 9), (lambda n: {(n, -1)}, BOUND * 9 // 20)],
    ids=["lists", "sets"],
)
def test_the_bound_is_one_for_all_rows_together(row, count):
    rows = [row(number) for number in range(count)]
    assert fingerprint(over([*rows, row(-2)])) == fingerprint(over([*rows, row(-3)]))
    assert fingerprint(over([row(-2), *rows])) != fingerprint(over([row(-3), *rows]))


def test_how_deep_the_stack_is_does_not_count():
    def deeper(calls):
        return deeper(calls - 1) if calls else fingerprint(policy)

    policy = over(nested(frozenset, 900))
    assert deeper(0) == deeper(200)


@pytest.mark.usefixtures("bound")
def test_code_counts_however_large_the_tables_beside_it_are():
    @dataclass
    class Row:
        number: int
        codes: list = field(default_factory=list)

    rows = [Row(number) for number in range(BOUND // 4)]
    one, other = ((rows, lambda: 1), (rows, lambda: 2))
    assert fingerprint(over(one)) != fingerprint(over(other))
