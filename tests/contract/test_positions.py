"""Positions: how they are spelled, and what a server says of one that a client names."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import same_json
from shelflife.contract.positions import Account, Moved, MovedRules, MovedTable, Named, Position
from shelflife.contract.preconditions import Precondition
from shelflife.server.faces import face_of
from shelflife.server.log import MOST_ENTRIES
from shelflife.server.registry import Registry
from shelflife.server.wire import Level
from tests.cells import have_changed
from tests.worlds import COLUMNS, KEYS, TABLES, WIDE, fitting, rows, rows_of, rule_lists, worlds

checks = st.from_regex(r"[A-Za-z][A-Za-z0-9]{5}", fullmatch=True)
positions = st.builds(Position, st.integers(0, 10**15 - 1), checks)
marks = st.from_regex(r"[A-Za-z0-9]{0,16}", fullmatch=True)
nonces = st.from_regex(r"[A-Za-z0-9.]{0,32}", fullmatch=True)
near_positions = st.text(st.sampled_from("Aa0123:;n=.* é\n,"), max_size=24)


@pytest.mark.spec("11.1")
@given(positions)
def test_a_position_is_read_back(position):
    assert Position.from_text(str(position)) == position
    assert str(position)[:6] == position.check


@pytest.mark.spec("11.1")
@given(st.one_of(near_positions, st.text(max_size=24)))
def test_a_position_is_spelled_in_one_way(text):
    position = Position.from_text(text)
    assert position is None or str(position) == text


@pytest.mark.spec("11.1")
@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "7", "Abcde7", "1bcdef7", "Abcdef", "Abcdef07", "Abcdef-1", "Abcdef+1", "Abcdef1.0"),
        *("Abcdef7\n", " Abcdef7", "Abcdef٣", "Äbcdef7", "Abcdef1" + "0" * 15, "Abcdef" + "9" * 10_000),
    ],
)
def test_anything_else_is_no_position(text):
    assert Position.from_text(text) is None


@pytest.mark.spec("11.2", "11.3")
@given(st.one_of(st.none(), positions), marks, nonces)
def test_what_a_request_names_is_read_back(position, mark, nonce):
    named = Named(position, mark, nonce)
    assert Named.from_header(named.header) == named
    assert Named.from_header(f" {named.header} ") == named
    assert Named.from_header(named.base) == Named(position, mark)


@pytest.mark.spec("11.3")
def test_what_a_request_names_is_a_token_with_a_parameter():
    assert Named().header == "*"
    assert Named(nonce="e3").header == "*;n=e3"
    assert Named(Position(12, "WO5gZa")).header == "WO5gZa12"
    assert Named(Position(12, "WO5gZa"), "m1", "d0.e3").header == "WO5gZa12:m1;n=d0.e3"


@pytest.mark.spec("11.3")
@given(st.one_of(near_positions, st.text(max_size=60)))
def test_what_is_named_is_understood_whole_or_not_at_all(text):
    named = Named.from_header(text)
    assert named is None or named.header == text.strip()


changes = st.one_of(
    st.tuples(
        st.just("table"),
        st.sampled_from(TABLES),
        st.dictionaries(st.sampled_from(KEYS), rows, max_size=2),
        st.lists(st.sampled_from(KEYS), max_size=1),
    ),
    st.tuples(st.just("rules"), rule_lists),
    st.tuples(st.just("policies"), st.dictionaries(st.sampled_from("pqr"), st.sampled_from("12"))),
    st.tuples(st.just("version"), st.sampled_from(TABLES)),
)
levels = st.sampled_from([Level(level) for level in (1, 4, 5, 6)])


def change(registry, what):
    match what:
        case ("rules", rules):
            registry.reload_rules(fitting(rules, rows_of(registry)))
        case ("policies", fingerprints):
            registry.declare_policies(fingerprints)
        case ("version", table):
            registry.reload_table(table, set={}, version=f"v{registry.state.number}")
        case (_, table, content, remove):
            registry.reload_table(table, set=content, remove=[key for key in remove if key not in content])


def played(world, rules, history):
    """A registry and all the states that it has passed."""
    registry = Registry(world, fitting(rules, world))
    passed = [registry.state]
    for what in history:
        change(registry, what)
        if registry.state is not passed[-1]:
            passed.append(registry.state)
    return registry, passed


def differing(before, after):
    """How one content of a table differs from another, by its rows and by nothing of the code under test."""
    return {
        "added": tuple(sorted(after.keys() - before.keys())),
        "removed": tuple(sorted(before.keys() - after.keys())),
        "changed": tuple(
            sorted(key for key in before.keys() & after.keys() if not same_json(before[key], after[key]))
        ),
    }


def differing_columns(before, after):
    gone = object()
    return tuple(
        sorted(
            column
            for column in {*before, *after}
            if gone in (before.get(column, gone), after.get(column, gone))
            or not same_json(before[column], after[column])
        )
    )


@pytest.mark.spec("11.1")
@given(worlds, rule_lists, st.lists(changes, max_size=6))
def test_every_change_leads_to_a_position_of_its_own(world, rules, history):
    _, passed = played(world, rules, history)
    named = [face_of(state, Level.FINGERPRINT).position for state in passed]
    assert [position.number for position in named] == list(range(len(passed)))
    assert len({position.check for position in named}) == len(passed)
    _, elsewhere = played(world, rules, history)
    others = {face_of(state, Level.FINGERPRINT).position for state in elsewhere}
    assert others.isdisjoint(named)


@pytest.mark.spec("11.7", "11.8")
@given(worlds, rule_lists, st.lists(changes, max_size=6), levels, marks)
def test_a_server_tells_how_its_state_differs_from_the_one_that_is_named(world, rules, history, level, mark):
    registry, passed = played(world, rules, history)
    now, face = registry.state, face_of(registry.state, level)
    for before in passed[:-1]:
        named = Named(face_of(before, level).position, mark)
        account = face.account(named)
        assert (account.to, account.since) == (str(face.position), named.base)
        assert (account.unknown, account.nonce) == (msgspec.UNSET, "")
        moved = account.moved
        for name, table in now.tables.items():
            rows_then, rows_now = before.tables[name].rows, table.rows
            told = moved.tables.get(name)
            if told is None:
                assert (before.tables[name].version, dict(rows_then)) == (table.version, dict(rows_now))
                continue
            lists = differing(rows_then, rows_now)
            assert {each: getattr(told, each) for each in lists} == lists
            assert told.known
            assert told.columns == (
                {key: differing_columns(rows_then[key], rows_now[key]) for key in told.changed}
                if level >= Level.VECTORS
                else {}
            )
            assert told.affected_downstream == () or (level >= Level.GRAPH and any(lists.values()))
            asked = face.changes_since({name: before.tables[name].version}, None).tables[name]
            assert asked.known
            assert {each: getattr(asked, each) for each in lists} == lists
            assert (asked.columns or {}) == told.columns
        rules_then, rules_now = set(before.rules), set(now.rules)
        if level < Level.FINGERPRINT or rules_then == rules_now:
            assert moved.rules is None
        else:
            assert set(moved.rules.added) == rules_now - rules_then
            assert set(moved.rules.removed) == rules_then - rules_now
        fingerprints = before.policies.items() - now.policies.items()
        assert sorted(moved.policies) == sorted(face.words.policy(name) for name, _ in fingerprints)


@pytest.mark.spec("11.6")
@given(worlds, rule_lists, st.lists(changes, max_size=4), levels, marks, nonces)
def test_at_the_position_that_is_named_there_is_nothing_to_tell(world, rules, history, level, mark, nonce):
    registry, _ = played(world, rules, history)
    face = face_of(registry.state, level)
    for named in (Named(face.position, mark, nonce), Named(None, mark, nonce)):
        assert face.account(named) == Account(to=str(face.position), nonce=nonce)


@pytest.mark.spec("11.9")
@given(worlds, st.lists(changes, max_size=4), levels, positions, marks)
def test_a_server_says_why_it_cannot_go_on_from_a_position(world, history, level, position, mark):
    registry, passed = played(world, [], history)
    face = face_of(registry.state, level)
    account = face.account(Named(position, mark, "n"))
    is_ahead = position.number >= len(passed)
    assert account == Account(
        to=str(face.position),
        since=Named(position, mark).base,
        unknown="ahead" if is_ahead else "foreign",
        nonce="n",
    )


@pytest.mark.spec("11.9")
def test_only_so_much_of_the_log_is_kept():
    registry = Registry({"t": {}})
    first = Named(face_of(registry.state, Level.FINGERPRINT).position)
    for number in range(MOST_ENTRIES):
        registry.reload_table("t", set={"k": {"n": number}})
    assert face_of(registry.state, Level.FINGERPRINT).account(first).moved.tables["t"].added == ("k",)
    registry.reload_table("t", set={"k": {"n": -1}})
    account = face_of(registry.state, Level.FINGERPRINT).account(first)
    assert (account.unknown, account.moved, account.since) == ("old", msgspec.UNSET, first.base)


def as_sent(account):
    return msgspec.json.decode(msgspec.json.encode(account))


@pytest.mark.spec("11.8")
def test_an_account_has_only_what_there_is_to_tell():
    registry = Registry({"t": {"k": {"n": 1}}, "u": {}})
    first = face_of(registry.state, Level.FINGERPRINT).position
    registry.reload_table("u", set={}, version="7")
    registry.reload_table("t", set={"k": {"n": 2}, "l": {}})
    face = face_of(registry.state, Level.FINGERPRINT)
    assert as_sent(face.account(Named(first, "m"))) == {
        "to": str(face.position),
        "from": f"{first}:m",
        "moved": {"tables": {"u": {}, "t": {"added": ["l"], "changed": ["k"], "columns": {"k": ["n"]}}}},
    }
    registry.reload_table("t", set={"k": {"n": 1}}, remove=["l"])
    registry.declare_policies({"p": "1"})
    face = face_of(registry.state, Level.FINGERPRINT)
    assert as_sent(face.account(Named(first)))["moved"] == {"tables": {"u": {}}}
    at_one = Named(face.position)
    registry.declare_policies({"p": "2"})
    face = face_of(registry.state, Level.FINGERPRINT)
    assert as_sent(face.account(at_one))["moved"] == {"policies": [face.words.policy("p")]}


@pytest.mark.spec("11.11")
def test_an_account_that_is_too_long_is_not_given_with_a_response():
    registry = Registry({"t": {}})
    named = Named(face_of(registry.state, Level.FINGERPRINT).position, "m")
    for number in range(1, 3):
        registry.reload_table("t", set={f"{key:0100}": {} for key in range(25 * number)})
        face = face_of(registry.state, Level.FINGERPRINT)
        stamp = msgspec.json.decode(b"{" + face.stamp_at(named, with_versions=False).members + b"}")["at"]
        is_told = number == 1
        assert ("moved" in stamp) is is_told
        assert stamp == as_sent(face.account(named)) or not is_told
        if not is_told:
            assert stamp == {"to": str(face.position), "from": named.base}
        assert len(face.account(named).moved.tables["t"].added) == 25 * number


cells_read = st.dictionaries(
    st.sampled_from(TABLES),
    st.one_of(
        st.none(),
        st.dictionaries(
            st.sampled_from(["", *KEYS]),
            st.one_of(st.none(), st.lists(st.sampled_from([*WIDE, "none"]), unique=True).map(tuple)),
            max_size=2,
        ).map(lambda read: read | {"": ()} if "" in read else read),
    ),
    max_size=3,
)
rule_ids = st.lists(
    st.builds(lambda table, relation: f"{table}:{relation}", st.sampled_from(TABLES), st.sampled_from("rs"))
)


@pytest.mark.spec("12.3", "12.4")
@given(
    worlds,
    rule_lists,
    st.lists(changes, max_size=5),
    levels,
    cells_read,
    rule_ids,
    st.sets(st.sampled_from("pqr")),
)
def test_a_precondition_is_met_exactly_when_nothing_that_it_names_has_changed(
    world, rules, history, level, cells, named_rules, named_policies
):
    registry, passed = played(world, rules, history)
    now, face = registry.state, face_of(registry.state, level)
    contents = rows_of(registry)
    for before in passed:
        position = face_of(before, level).position
        is_here = before is now
        rows_then = {name: table.rows for name, table in before.tables.items()}
        has_row_changed = have_changed(cells, rows_then, contents)
        rules_changed = {rule.id for rule in set(before.rules) ^ set(now.rules)}
        policies_changed = {name for name, _ in before.policies.items() - now.policies.items()}

        def is_met(position=position, **grounds):
            return face.meets(Precondition(at=str(position), **grounds))

        none = {"rules": (), "policies": ()}
        by_cells = is_met(cells=cells, **none)
        assert by_cells is (is_here or not has_row_changed)
        hit = not rules_changed.isdisjoint(named_rules)
        assert is_met(cells={}, rules=tuple(named_rules), policies=()) is (is_here or not hit)
        assert is_met(cells={}, policies=()) is (is_here or not rules_changed)
        hit = not policies_changed.isdisjoint(named_policies)
        short = tuple(map(face.words.policy, named_policies))
        assert is_met(cells={}, rules=(), policies=short) is (is_here or not hit)
        assert is_met(cells={}, rules=()) is (is_here or not policies_changed)
        assert is_met(cells={"gone": {"k": ()}}, **none) is is_here
        for brief in ({}, none, {"policies": ()}):
            assert is_met(**brief) is is_here
        other = position._replace(check="Zzzzz9")
        assert not is_met(other, cells={}, **none)
    assert not is_met(face.position._replace(number=len(passed)), cells={}, **none)


tables_moved = st.builds(
    MovedTable,
    added=st.lists(st.sampled_from(KEYS), max_size=2).map(tuple),
    changed=st.lists(st.sampled_from(KEYS), max_size=2).map(tuple),
    columns=st.dictionaries(st.sampled_from(KEYS), st.lists(st.sampled_from(COLUMNS)).map(tuple)),
)
accounts = st.builds(
    Account,
    to=positions.map(str),
    since=positions.map(str),
    moved=st.one_of(
        st.just(msgspec.UNSET),
        st.builds(
            Moved,
            tables=st.dictionaries(st.sampled_from(TABLES), tables_moved),
            rules=st.one_of(st.none(), st.builds(MovedRules, added=rule_lists.map(tuple))),
            policies=st.lists(st.sampled_from(["0a1", "b2c"])).map(tuple),
        ),
    ),
    nonce=nonces,
)


@pytest.mark.spec("11.8")
@given(accounts)
def test_an_account_is_read_back(account):
    assert msgspec.json.decode(msgspec.json.encode(account), type=Account) == account
