"""What a response means, step by step: each step is a function of values, and a row of a table is one case of it."""

import json

import pytest
from msgspec import UNSET

from shelflife.client.asking import Exchange, Question, Reply
from shelflife.client.entries import Knowledge
from shelflife.client.events import Reason
from shelflife.client.reading import Contract
from shelflife.client.steps import (
    Disposal,
    MovedOn,
    New,
    Returned,
    Told,
    Unmoved,
    Untold,
    Word,
    dispose,
    what_moved,
)
from shelflife.client.strategies import EXACT, RULES
from shelflife.client.writing import what_is_taught
from shelflife.contract import Rule, RulesChanges, Suggestion, TableChanges
from shelflife.contract.messages import TableVersion
from shelflife.contract.versions import Versions

KNOWN = Knowledge(
    versions=Versions({"t": "2", "u": "1"}, "r2"), state_tag="s2", superseded={"t": ("1",), RULES: ("r1",)}
)
NOTHING = Knowledge()
TIE = Rule(from_table="t", to_table="u", relation="ties")


def said(t="2", u="1", rules="r2", tag=None, suggestions=()):
    """A response that names these versions."""
    tables = {name: version for name, version in (("t", t), ("u", u)) if version is not None}
    return Contract(versions=Versions(tables, rules), state_tag=tag, suggestions=suggestions)


@pytest.mark.parametrize(
    ("knowledge", "contract", "how", "expected"),
    [
        (KNOWN, said(), {}, Unmoved()),
        (NOTHING, said(), {}, New({"t": None, "u": None, RULES: None})),
        (NOTHING, Contract(versions=Versions({})), {}, Unmoved()),
        (KNOWN, said(t="3"), {}, MovedOn({"t": "2"})),
        (KNOWN, said(t="3", u="2"), {}, MovedOn({"t": "2", "u": "1"})),
        (KNOWN, said(u=None), {}, MovedOn({"u": "1"})),
        (KNOWN, said(rules="r3"), {}, MovedOn({RULES: "r2"})),
        (KNOWN, said(rules=None), {}, Unmoved()),
        (KNOWN, said(t="1"), {}, Returned({"t": "2"})),
        (KNOWN, said(rules="r1"), {}, Returned({RULES: "r2"})),
        (KNOWN, said(t="1", u="2"), {}, Returned({"t": "2", "u": "1"})),
        (KNOWN, Contract(state_tag="s2"), {}, Unmoved()),
        (KNOWN, Contract(state_tag="s3"), {}, Untold({})),
        (KNOWN, Contract(), {}, Unmoved()),
        (KNOWN, said(), {"is_doubted": True}, Untold({})),
        (KNOWN, said(t="3"), {"is_doubted": True}, Untold({"t": "2"})),
        (KNOWN, said(t="1"), {"is_latest": True}, MovedOn({"t": "2"})),
        (KNOWN, said(), {"is_latest": True}, Unmoved()),
    ],
)
def test_what_has_moved(knowledge, contract, how, expected):
    moved = what_moved(knowledge, contract, **how)
    assert (type(moved), moved) == (type(expected), expected)


def changed(table, since="2", version="3", keys=("k",), *, known=True):
    return TableChanges(
        since=since, version=version, known=known, added=(), removed=(), changed=tuple(keys) if known else ()
    )


def told_of(*changes, rules=None):
    """The answer to a question about changes."""
    tables = dict(changes)
    message = {
        "tables": {
            name: {"since": one.since, "version": one.version, "known": one.known}
            | ({"added": [], "removed": [], "changed": list(one.changed)} if one.known else {})
            for name, one in tables.items()
        },
        "table_versions": {},
    }
    return Reply(200, json.dumps(message | ({"rules": rules} if rules else {})).encode())


def state(**versions):
    return Reply(200, json.dumps({"table_versions": versions, "rules_version": "r2"}).encode())


def asked(contract, answers, *, knowledge=KNOWN, held=("t", "u"), is_latest=False, is_doubted=False):
    """What a server has told in the end, and all that it was asked: the end of each URL."""
    word = Word("http://h", EXACT, held.__contains__)
    movement = word.moved(knowledge, contract, is_doubted=is_doubted, is_latest=is_latest)
    steps = word.finding_out(knowledge, contract, movement, is_latest=is_latest)
    questions, reply = [], None
    while True:
        try:
            question = steps.send(reply)
        except StopIteration as end:
            return end.value, questions
        assert isinstance(question, Question)
        questions.append(question.url.removeprefix("http://h/contract/"))
        reply = answers.pop(0)


FIX_OF_T = Suggestion(type="F", parameters={}, cache_hint="cacheable", table="t")


@pytest.mark.parametrize(
    ("contract", "how", "answers", "questions", "found"),
    [
        # of what is held, it is asked what has changed
        (said(t="3"), {}, [told_of(("t", changed("t")))], ["changes?since=t%3A2"], {"t": "3"}),
        # of what is not held, it is not
        (said(t="3"), {"held": ()}, [], [], {}),
        # unless the response has a fix that depends on it, which might be late
        (
            said(t="3", suggestions=(FIX_OF_T,)),
            {"held": ()},
            [told_of(("t", changed("t")))],
            ["changes?since=t%3A2"],
            {"t": "3"},
        ),
        # without an answer nothing is known of it
        (said(t="3"), {}, [None], ["changes?since=t%3A2"], {}),
        (said(t="3"), {}, [Reply(500, b"")], ["changes?since=t%3A2"], {}),
        (said(t="3"), {}, [Reply(200, b"{")], ["changes?since=t%3A2"], {}),
        # of the rules it is always asked
        (
            said(rules="r3"),
            {"held": ()},
            [told_of(rules={"since": "r2", "version": "r3", "known": False})],
            ["changes?rules=r2"],
            {RULES: "r3"},
        ),
        # the server has moved on since it answered: the answer counts as it stands
        (
            said(t="3"),
            {"is_latest": True},
            [told_of(("t", changed("t", version="4")))],
            ["changes?since=t%3A2"],
            {},
        ),
        # in doubt the state is asked for first
        (said(), {"is_doubted": True}, [state(t="2", u="1")], ["state"], {}),
        (
            said(),
            {"is_doubted": True},
            [state(t="3", u="1"), told_of(("t", changed("t")))],
            ["state", "changes?since=t%3A2"],
            {"t": "3"},
        ),
        (said(), {"is_doubted": True}, [None], ["state"], {}),
    ],
)
def test_what_must_be_asked(contract, how, answers, questions, found):
    told, put = asked(contract, list(answers), **how)
    assert put == questions
    assert {part: change.version for part, change in told.changes.items()} == found


@pytest.mark.parametrize(
    ("second", "late"),
    [
        (told_of(("t", changed("t", since="3", version="2", keys=()))), {"t"}),
        (told_of(("t", changed("t", since="3", version="2", known=False))), set()),
        (None, set()),
    ],
)
def test_a_server_that_says_nothing_has_moved_is_asked_whether_it_knows_the_version(second, late):
    nothing = told_of(("t", changed("t", version="2", keys=())))
    told, questions = asked(said(t="3"), [nothing, second])
    assert questions == ["changes?since=t%3A2", "changes?since=t%3A3"]
    assert told.late == late


def rules_changed(*rules, known=True):
    return RulesChanges(since="r2", version="r3", known=known, added=rules, removed=())


MOVED = MovedOn({"t": "2"})
RULES_MOVED = MovedOn({RULES: "r2"})
OF_A_ROW = {"rows t": Reason.ROW_CHANGED, "row t:k": Reason.ROW_CHANGED}
OF_THE_TABLE = {"table t": Reason.TABLE_MOVED}


@pytest.mark.parametrize(
    ("told", "dropped", "versions", "is_teaching"),
    [
        # nothing has moved: nothing goes
        (Told(said(), Unmoved()), {}, ("2", "r2"), True),
        # rows that changed take what rests on them
        (Told(said(t="3"), MOVED, changes={"t": changed("t")}), OF_A_ROW, ("3", "r2"), True),
        # a table that moved without a row having changed takes nothing
        (Told(said(t="3"), MOVED, changes={"t": changed("t", keys=())}), {}, ("3", "r2"), True),
        # nobody can say which rows: all that depends on the table goes
        (Told(said(t="3"), MOVED), OF_THE_TABLE, ("3", "r2"), True),
        (Told(said(t="3"), MOVED, changes={"t": changed("t", known=False)}), OF_THE_TABLE, ("3", "r2"), True),
        # what the server answers counts, and not what the response says
        (
            Told(said(t="3"), MOVED, changes={"t": changed("t", version="4")}),
            OF_A_ROW,
            ("4", "r2"),
            True,
        ),
        # the server knows the response's version to have passed: it is late, and nothing goes
        (
            Told(said(t="3"), MOVED, changes={"t": changed("t", version="2", keys=())}, late=frozenset("t")),
            {},
            ("2", "r2"),
            True,
        ),
        # the server denies the version that it gave: nobody can say, and all of the table goes
        (
            Told(said(t="3"), MOVED, changes={"t": changed("t", version="2", keys=())}),
            OF_THE_TABLE,
            (None, "r2"),
            True,
        ),
        # unasked, a version that has passed is late or a rollback: all of the table goes
        (Told(said(t="1"), Returned({"t": "2"})), OF_THE_TABLE, (None, "r2"), True),
        # the server answers that it was rolled back
        (
            Told(said(t="1"), MOVED, Versions({"t": "1", "u": "1"}, "r2"), {"t": changed("t", version="1")}),
            OF_A_ROW,
            ("1", "r2"),
            True,
        ),
        # rules that changed take nothing
        (Told(said(rules="r3"), RULES_MOVED, changes={RULES: rules_changed(TIE)}), {}, ("2", "r3"), True),
        (Told(said(rules="r3"), RULES_MOVED, changes={RULES: rules_changed()}), {}, ("2", "r3"), True),
        (Told(said(rules="r3"), RULES_MOVED), {"all": Reason.RULES_MOVED}, ("2", "r3"), True),
        # the state is unknown, and nobody says what it is: everything goes, and nothing is learned
        (Told(Contract(state_tag="s3"), Untold({})), {"all": Reason.IN_DOUBT}, (None, "r2"), False),
        (Told(said(), Untold({})), {"all": Reason.IN_DOUBT}, ("2", "r2"), False),
        # the state was asked for, and is the known one
        (Told(said(), Unmoved(), Versions({"t": "2", "u": "1"}, "r2")), {}, ("2", "r2"), True),
    ],
)
def test_what_goes_and_what_is_known_afterwards(told, dropped, versions, is_teaching):
    disposal = dispose(KNOWN, told, EXACT)
    known = disposal.knowledge.versions
    assert disposal.dropped == dropped
    assert (known.tables.get("t"), known.rules) == versions
    assert disposal.is_teaching is is_teaching


def test_what_rests_on_a_rule_that_changed_or_on_any_is_suspect():
    disposal = dispose(KNOWN, Told(said(rules="r3"), RULES_MOVED, changes={RULES: rules_changed(TIE)}), EXACT)
    assert (disposal.suspect, disposal.alert) == (["rule", "rule t:ties"], "stamp")


def test_versions_that_have_passed_are_remembered_as_such():
    disposal = dispose(KNOWN, Told(said(t="3"), MOVED), EXACT)
    assert disposal.knowledge.superseded == {"t": ("1", "2"), RULES: ("r1",), ":state": ("s2",)}


REQUEST = {"plan": "basic"}


def fix(cache_hint="cacheable", **versions):
    """A fix that depends on tables at these versions."""
    tables = tuple(TableVersion(table=table, version=version) for table, version in versions.items())
    return Suggestion(
        type="F",
        parameters={"x": 1},
        cache_hint=cache_hint,
        tables=tables or UNSET,
        rows=tuple(f"{table}:k" for table in versions) or UNSET,
        when=REQUEST if versions else UNSET,
    )


@pytest.mark.parametrize(
    ("contract", "how", "known", "outrun"),
    [
        # a fix of the state that is known is kept
        (said(suggestions=(fix(t="2"),)), {}, 1, 0),
        (said(suggestions=(fix(t="2", u="1"),)), {}, 1, 0),
        # the same twice is one
        (said(suggestions=(fix(t="2"), fix(t="2"))), {}, 1, 0),
        # one that must not be kept is not
        (said(suggestions=(fix("recompute"),)), {}, 0, 0),
        # nor one that depends on nothing that is known
        (said(suggestions=(fix(),)), {}, 0, 0),
        # the server has moved on from the state that the response names
        (said(t="1", suggestions=(fix(t="1"),)), {}, 0, 1),
        (said(rules="r1", suggestions=(fix(t="2"),)), {}, 0, 1),
        # a fix that is neither of the known state nor of the one that its response names
        (said(suggestions=(fix(t="7"),)), {}, 0, 0),
        # nothing is learned from a response that might be an old one
        (said(suggestions=(fix(t="2"),)), {"is_teaching": False}, 0, 0),
        # nor for a request that JSON cannot carry
        (said(suggestions=(fix(t="2"),)), {"request": {"plan": float("nan")}}, 0, 0),
    ],
)
def test_what_a_response_teaches(contract, how, known, outrun):
    exchange = Exchange("http://h", "POST /x", how.get("request", REQUEST), Reply(422, b""))
    disposal = Disposal(KNOWN, is_teaching=how.get("is_teaching", True))
    taught = what_is_taught(exchange, contract, disposal, learned_at=1.0, strategy="exact")
    assert (len(taught.known), len(taught.outrun)) == (known, outrun)
    assert [entry.is_suspect for entry in (*taught.known, *taught.outrun)] == [False] * known + [
        True
    ] * outrun
