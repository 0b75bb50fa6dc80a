"""The compact form: epochs, and what a server tells a client that knows one."""

import hashlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.contract import BadMessage, Suggestion
from shelflife.contract.compact import CompactSuggestion, Moved, changes_of, compacted, expanded
from shelflife.contract.messages import TableVersion
from shelflife.contract.versions import Versions
from shelflife.server.registry import Registry
from shelflife.server.wire import Level, WireFormat
from tests.worlds import KEYS, TABLES, fitting, rows, rows_of, rule_lists, scalars, worlds

versions = st.dictionaries(st.sampled_from([*TABLES, "u", "v"]), st.sampled_from(["1", "2", "3-ab"]))


@pytest.mark.spec("11.1")
@given(versions, st.sampled_from([None, "abc", "def"]))
def test_the_epoch_is_that_of_the_spec(table_versions, rules_version):
    canonical = json.dumps([table_versions, rules_version], sort_keys=True, separators=(",", ":"))
    number = int(hashlib.sha256(canonical.encode()).hexdigest(), 16)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    token = letters[number % 52]
    number //= 52
    for _ in range(7):
        token += (letters + "0123456789")[number % 62]
        number //= 62
    assert Versions(table_versions, rules_version).epoch == token
    shuffled = dict(reversed(table_versions.items()))
    assert Versions(shuffled, rules_version).epoch == token


parameters = st.dictionaries(st.sampled_from(["x", "y"]), st.one_of(scalars, st.just({"n": 1})), min_size=1)
suggestions = st.builds(
    lambda parameters, rows, rules, when, unless, is_implied, has_rows: Suggestion(
        type="T",
        parameters=parameters,
        cache_hint="cacheable",
        table="t0",
        tables=tuple(
            TableVersion(table=table, version="1")
            for table in dict.fromkeys(row.partition(":")[0] for row in rows)
        ),
        rows=tuple(rows) if has_rows else msgspec.UNSET,
        rules=tuple(rules) or msgspec.UNSET if has_rows else msgspec.UNSET,
        when=when if has_rows else msgspec.UNSET,
        unless=({name: (value,) for name, value in parameters.items()} if is_implied else unless)
        or msgspec.UNSET
        if has_rows
        else msgspec.UNSET,
    ),
    parameters,
    st.lists(
        st.sampled_from(["t0:a", "t0:b", "t1:a", "t2", "t1:1", "t2:a:b=c>d", "t0:"]), min_size=1, unique=True
    ),
    st.lists(st.sampled_from(["t0:r", "t1:s"]), unique=True),
    st.dictionaries(st.sampled_from(["f", "g"]), scalars),
    st.dictionaries(st.sampled_from(["f", "x"]), st.lists(scalars, min_size=1).map(tuple)),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.spec("11.7")
@given(suggestions)
def test_a_compact_suggestion_says_all_that_the_full_one_says(suggestion):
    raw = msgspec.json.encode(compacted(suggestion, ["t2", "t0", "t1"]))
    again = expanded(msgspec.json.decode(raw, type=CompactSuggestion), dict.fromkeys(["t0", "t1", "t2"], "1"))
    left, right = (msgspec.to_builtins(one) for one in (again, suggestion))
    assert sorted(left.pop("tables"), key=str) == sorted(right.pop("tables"), key=str)
    left.pop("table"), right.pop("table")
    assert json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"on": ["9:a"]},
        {"on": ["x:a"]},
        {"on": ["0=n"]},
        {"on": ["0=none"]},
        {"on": ["0=m"]},
        {"on": ["-1:a"]},
        {"tables": [3]},
        {"on": [""]},
    ],
)
def test_grounds_that_are_not_there_are_no_grounds(wrong):
    raw = {"type": "T", "parameters": {"n": 1, "m": {"a": 1}}, "when": {}} | wrong
    with pytest.raises(BadMessage):
        expanded(msgspec.convert(raw, CompactSuggestion), dict.fromkeys(TABLE_NAMES, "1"))


TABLE_NAMES = ["plans", "codes", "boxes"]


def as_sent(message):
    return json.loads(msgspec.json.encode(message))


@pytest.mark.spec("11.7")
def test_a_compact_suggestion_leaves_out_what_follows():
    suggestion = Suggestion(
        type="T",
        parameters={"promo": "P"},
        cache_hint="cacheable",
        table="codes",
        tables=(TableVersion(table="codes", version="1"), TableVersion(table="plans", version="1")),
        rows=("codes:a", "codes:b", "plans:P"),
        rules=("codes:needs",),
        when={"plan": "a"},
        unless={"promo": ("P",)},
    )
    assert as_sent(compacted(suggestion, TABLE_NAMES)) == {
        "type": "T",
        "parameters": {"promo": "P"},
        "on": ["1=plan", "1:b", "2=promo", "1>needs"],
        "when": {"plan": "a"},
    }
    plain = msgspec.structs.replace(suggestion, unless=msgspec.UNSET)
    assert as_sent(compacted(plain, TABLE_NAMES))["unless"] == {}
    coarse = WireFormat(level=Level.STAMPS).suggestion(suggestion)
    assert as_sent(compacted(coarse, TABLE_NAMES)) == {
        "type": "T",
        "parameters": {"promo": "P"},
        "tables": [1],
    }
    recompute = Suggestion(type="T", parameters={"n": 1}, cache_hint="recompute")
    assert as_sent(compacted(recompute, TABLE_NAMES)) == {
        "type": "T",
        "parameters": {"n": 1},
        "cache_hint": "recompute",
    }


changes = st.one_of(
    st.tuples(
        st.just("table"),
        st.sampled_from(TABLES),
        st.dictionaries(st.sampled_from(KEYS), rows, max_size=2),
        st.lists(st.sampled_from(KEYS), max_size=1),
    ),
    st.tuples(st.just("rules"), rule_lists),
)


def change(registry, what):
    if what[0] == "rules":
        registry.reload_rules(fitting(what[1], rows_of(registry)))
        return
    _, table, rows, remove = what
    registry.reload_table(table, set=rows, remove=[key for key in remove if key not in rows])


@pytest.mark.spec("11.3", "11.4", "11.6")
@settings(max_examples=150, deadline=None)
@given(worlds, rule_lists, st.lists(changes, max_size=6), st.sampled_from([1, 4, 5, 6]))
def test_what_a_server_tells_of_an_epoch_is_what_it_would_tell_when_asked(world, rule_list, history, level):
    registry, level = Registry(world, fitting(rule_list, world)), Level(level)
    passed = [registry.state]
    for what in history:
        change(registry, what)
        passed.append(registry.state)
    state = registry.state
    now = state.face(level).stamp.message
    for known in (one.face(level).stamp.message for one in passed):
        epoch = Versions(known.table_versions, known.rules_version or None).epoch
        stamp = state.face(level).compact_stamp(epoch)
        if stamp is None:
            continue  # the full form was shorter
        told = msgspec.json.decode(b"{" + stamp.members + b"}")["epoch"]
        if told == 1:
            assert known == now
            continue
        assert len(stamp.members) - len(b'"epoch":') <= len(state.face(level).stamp.members) + 1024
        moved = msgspec.convert(told, Moved)
        as_changes = changes_of(Versions(known.table_versions, known.rules_version or None), moved)
        asked = {
            table: version
            for table, version in known.table_versions.items()
            if now.table_versions.get(table) != version
        }
        when_asked = state.face(level).changes_since(asked, known.rules_version or None)
        assert as_changes.table_versions == when_asked.table_versions
        assert as_changes.rules_version == when_asked.rules_version
        assert as_changes.tables.keys() == when_asked.tables.keys()
        for table, one in as_changes.tables.items():
            other = when_asked.tables[table]
            assert (one.since, one.version, one.known) == (other.since, other.version, other.known)
            for name in ("added", "removed", "changed"):
                assert getattr(one, name) == getattr(other, name)
            assert (one.affected_downstream or ()) == (other.affected_downstream or ())
        if known.rules_version != now.rules_version:
            assert as_changes.rules == when_asked.rules
    assert state.face(level).compact_stamp("nonsense") is None


@pytest.mark.spec("11.5")
def test_a_table_that_is_new_or_gone_is_told_so():
    told = msgspec.convert(
        {"tables": {"new": {"version": "1", "known": False}, "gone": {"version": None, "known": False}}},
        Moved,
    )
    as_changes = changes_of(Versions({"gone": "5", "kept": "2"}, "abc"), told)
    assert as_changes.table_versions == {"kept": "2", "new": "1"}
    assert as_changes.tables.keys() == {"gone"}
    assert not as_changes.tables["gone"].known
    assert as_changes.rules_version == "abc"


def test_only_so_many_epochs_are_kept():
    registry = Registry({"t": {}})
    first = Versions(registry.state.table_versions, registry.state.rules.version).epoch
    for number in range(64):
        registry.reload_table("t", set={"k": {"n": number}})
    assert registry.state.face(Level.FINGERPRINT).compact_stamp(first) is not None
    registry.reload_table("t", set={"k": {"n": -1}})
    assert registry.state.face(Level.FINGERPRINT).compact_stamp(first) is None
