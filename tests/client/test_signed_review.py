"""What a signed lineage and a shared file must not let through."""

import base64
import json

import msgspec
import pytest

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.sqlite import SqliteStore
from shelflife.contract.compact import Moved, MovedTable
from shelflife.contract.signed import Statement, statement_input
from shelflife.contract.versions import Versions
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.lab.arms import ARMS

ORIGIN = "https://api.example:443"
KEY = SigningKey.new()
ONE, TWO = {"t": "1", "u": "1"}, {"t": "2", "u": "1"}


def statement(sequence, versions, previous=None, **moved):
    text = Statement(
        lineage="a" * 32,
        sequence=sequence,
        table_versions=versions,
        rules_version=None,
        previous=previous and Versions(previous).digest,
        moved=Moved(tables={name: MovedTable(**told) for name, told in moved.items()}) if moved else None,
        made_at=1000,
        expires_at=10**10,
    ).text
    signature = base64.b64encode(KEY.sign(statement_input(text))).decode()
    return {"statement": text, "key": KEY.key, "signature": signature}


class Side:
    """A memory, and a server that says what it is told to say."""

    def __init__(self, store=None, **options):
        self.statements = []
        self.memory = Memory(
            store, ask=self.ask, clock=lambda: 2000.0, **({"trust": trust({ORIGIN: [KEY.key]})} | options)
        )

    def ask(self, question):
        return Reply(200, msgspec.json.encode({"statements": self.statements}))

    def see(self, versions, value=None, of=None, origin=ORIGIN):
        body = {"table_versions": versions}
        if value is not None:
            tables = [{"table": "t", "version": (of or versions)["t"]}]
            fix = {"type": "f", "parameters": {"p": value}, "cache_hint": "cacheable", "table": "t"}
            body["recovery_feedback"] = {
                "suggestions": [{**fix, "tables": tables, "rows": ["t:k"], "when": {"a": 1}}]
            }
        headers = {"content-type": "application/json"}
        self.memory.observe(
            Exchange(origin, "POST /x", {"a": 1}, Reply(422, json.dumps(body).encode(), headers))
        )

    def recall(self, origin=ORIGIN):
        return [entry.parameters["p"] for entry in self.memory.recall(origin, "POST /x", {"a": 1})]


@pytest.fixture
def side():
    side = Side()
    side.statements = [statement(1, ONE)]
    side.see(ONE, "old")
    assert side.recall() == ["old"]
    return side


GONE, BACK, MOVED = {"u": "1"}, {"t": "5", "u": "1"}, {"t": "6", "u": "1"}
ELSEWHERE = {"changed": ("elsewhere",)}


@pytest.mark.parametrize(
    "steps",
    [
        [(TWO, {"version": "2", **ELSEWHERE}), (GONE, {"version": None, "known": False})],
        [
            (GONE, {"version": None, "known": False}),
            (BACK, {"version": "5", "known": False}),
            (MOVED, {"version": "6", **ELSEWHERE}),
        ],
        [
            (TWO, {"version": "2", **ELSEWHERE}),
            (GONE, {"version": None, "known": False}),
            (BACK, {"version": "5", "known": False}),
            (MOVED, {"version": "6", **ELSEWHERE}),
        ],
    ],
)
def test_a_table_that_was_gone_in_between_takes_what_rests_on_it_along(side, steps):
    states = [ONE, *(state for state, _ in steps)]
    side.statements = [
        statement(number, state, states[number - 2], t=told)
        for number, (state, told) in enumerate(steps, start=2)
    ]
    side.see(states[-1])
    assert side.recall() == []
    assert side.memory.store.known(ORIGIN).knowledge.versions.tables == states[-1]


@pytest.mark.parametrize("number", [10**10, 2**63, 2**64])
def test_a_number_may_be_as_large_as_it_likes(side, number):
    side.statements = [statement(number, TWO)]
    side.see(TWO)
    assert side.recall() == []


def test_statements_out_of_order_are_not_believed(side):
    side.statements = [statement(5, MOVED), statement(2, TWO, ONE)]
    side.see(TWO)
    assert side.memory.store.known(ORIGIN).knowledge.vouched.sequence == 1


def test_another_strategy_cannot_be_led_behind_what_was_seen(tmp_path):
    store = SqliteStore(tmp_path / "memory.db")
    first, other = Side(store), Side(store, strategy=ARMS["A2"])
    for number, state, before in ((1, ONE, None), (2, TWO, ONE)):
        first.statements = [statement(number, state, before)]
        first.see(state)
    other.statements = [statement(1, ONE)]
    other.see(ONE, "replayed")
    assert other.recall() == []
    store.close()


def test_what_a_memory_without_keys_believes_is_not_vouched_for(tmp_path):
    stores = [SqliteStore(tmp_path / "memory.db") for _ in range(2)]
    careful, careless = Side(stores[0]), Side(stores[1], trust=None)
    careful.statements = [statement(1, ONE)]
    careful.see(ONE, "good")
    careless.see({"t": "666", "u": "1"}, "poison")
    assert careful.recall() == []
    careful.see(ONE, "good")
    assert careful.recall() == ["good"]
    for store in stores:
        store.close()


@pytest.mark.parametrize("strategy", ["A1", "A2", "A2D", "A2DC"])
def test_from_a_state_that_is_not_believed_nothing_is_learned(strategy):
    side = Side(strategy=ARMS[strategy])
    side.statements = [statement(1, ONE)]
    side.see(ONE)
    side.see({"t": "1", "u": "666"}, "of another state")
    side.see({"t": "666", "u": "1"}, "of another version")
    side.see({"t": "666", "u": "1"}, "of another stamp", of=ONE)
    assert side.recall() == []


def test_a_pin_holds_however_the_origin_is_spelled():
    side = Side(trust=trust({"https://api.example": [KEY.key]}))
    side.statements = []
    side.see(ONE, "unsigned", origin="https://api.example")
    assert side.recall("https://api.example") == []
