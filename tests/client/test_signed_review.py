"""What signed answers and a shared file must not let through."""

import base64
import hashlib
import json
import threading
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.events import Distrusted, LogLost
from shelflife.client.sqlite import SqliteStore
from shelflife.contract.positions import ROOT_HEADER, Moved, MovedTable
from shelflife.contract.signed import Statement, statement_input
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.lab.arms import ARMS

ORIGIN = "https://api.example:443"
KEY = SigningKey.new()
ONE, TWO, THREE = "Abcdef1", "Abcdef2", "Abcdef3"
ALL_MOVED = {"moved": Moved(tables={"t": MovedTable(known=False)})}
NOTHING_MOVED = {"moved": Moved()}


class Side:
    """A memory, and a server that says what it is told to say."""

    def __init__(self, store=None, **options):
        self.to, self.told, self.root = ONE, {}, ""
        self.asked, self.events = [], []
        self.state_now = lambda: (self.to, self.told)
        self.after_signing = lambda: None
        self.memory = Memory(
            store,
            clock=lambda: 2000.0,
            on_event=self.events.append,
            **({"ask": self.ask, "trust": trust({ORIGIN: [KEY.key]})} | options),
        )

    def ask(self, question):
        self.asked.append(question.url)
        if "/contract/signed" not in question.url:
            return None
        to, told = self.state_now()
        query = parse_qs(urlsplit(question.url).query)
        text = Statement(
            to=to,
            since=query["from"][0] if told else "",
            nonce=query["nonce"][0],
            root=self.root,
            log="a" * 32,
            digest=hashlib.sha256(to.encode()).hexdigest(),
            made_at=1000,
            expires_at=10**10,
            **told,
        ).text
        self.after_signing()
        signature = base64.b64encode(KEY.sign(statement_input(text))).decode()
        return Reply(200, msgspec.json.encode({"statement": text, "key": KEY.key, "signature": signature}))

    def at(self, to, told):
        """From now on the server is there."""
        self.to, self.told = to, told

    def see(self, at, value=None, *, root=ORIGIN, path=None, told_root=None):
        versions = {"t": "1"}
        body = {"table_versions": versions, "at": at}
        if value is not None:
            fix = {"type": "f", "parameters": {"p": value}, "cache_hint": "cacheable", "table": "t"}
            tables = [{"table": "t", "version": "1"}]
            body["recovery_feedback"] = {
                "suggestions": [{**fix, "tables": tables, "rows": ["t:k"], "when": {"a": 1}}]
            }
        headers = {"content-type": "application/json"}
        if told_root is not None:
            headers[ROOT_HEADER] = told_root
        reply = Reply(422, json.dumps(body).encode(), headers)
        self.memory.observe(
            Exchange(root, "POST /x", {"a": 1}, reply, at=self.memory.contract_at(root), path=path)
        )

    def recall(self, root=ORIGIN):
        return [entry.parameters["p"] for entry in self.memory.recall(root, "POST /x", {"a": 1})]

    def known(self, root=ORIGIN):
        return self.memory.store.known(root).knowledge

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def side():
    side = Side()
    side.see(ONE, "old")
    assert side.recall() == ["old"]
    return side


@pytest.mark.parametrize("number", [10**10, 10**15 - 1])
def test_a_number_may_be_as_large_as_it_likes(side, number):
    side.at(f"Abcdef{number}", ALL_MOVED)
    side.see(f"Abcdef{number}")
    assert side.recall() == []
    assert side.known().vouched.at == f"Abcdef{number}"


def test_a_number_that_is_too_large_for_a_position_is_none(side):
    side.at(f"Abcdef{10**15}", ALL_MOVED)
    side.see(TWO)
    assert side.known().vouched.at == ONE
    assert side.recall() == []
    assert "malformed" in side.of(Distrusted)[0].why


@pytest.mark.spec("15.13")
def test_another_strategy_cannot_be_led_behind_what_was_seen(tmp_path):
    store = SqliteStore(tmp_path / "memory.db")
    first, other = Side(store), Side(store, strategy=ARMS["A2"])
    first.see(ONE)
    first.at(TWO, NOTHING_MOVED)
    first.see(TWO)
    other.see(ONE, "replayed")
    assert other.recall() == []
    assert "rolled back" in other.of(Distrusted)[0].why
    assert (other.known().vouched.at, other.known().vouched.expires_at) == (TWO, 0)
    store.close()


@pytest.mark.spec("15.14")
@pytest.mark.parametrize("to", [TWO, "Forged7"])
def test_what_a_memory_without_keys_believes_is_not_vouched_for(tmp_path, to):
    """Neither what it was taught, nor that what is remembered has outlived a move: also when the position is a real one."""
    stores = [SqliteStore(tmp_path / "memory.db") for _ in range(2)]
    careful, careless = Side(stores[0]), Side(stores[1], trust=None)
    careful.see(ONE, "good")
    careless.see({"to": to, "from": careless.memory.contract_at(ORIGIN), "moved": {}})
    assert careless.recall() == ["good"]
    assert careful.recall() == []
    careless.see(to, "poison")
    assert careless.recall() == ["poison"]
    careful.at(TWO, {} if to == TWO else {"unknown": "foreign"})
    careful.see(TWO)
    assert careful.recall() == []
    assert careful.of(Distrusted) == []
    careful.see(TWO, "good")
    assert careful.recall() == ["good"]
    for store in stores:
        store.close()


@pytest.mark.parametrize("strategy", ["A1", "A2", "A2D", "A2DC"])
def test_from_a_state_that_is_not_believed_nothing_is_learned(strategy):
    side = Side(strategy=ARMS[strategy])
    side.see(ONE)
    side.see(TWO, "of a later state")
    side.see("Forged1", "of another state")
    side.see("Abcdef0", "of an earlier state")
    side.see({"to": TWO, "from": side.memory.contract_at(ORIGIN), "moved": {}}, "of a state that it leads to")
    side.see(
        {"to": TWO, "from": side.memory.contract_at(ORIGIN), "unknown": "old"}, "of a state that is far off"
    )
    assert list(side.memory.store.entries()) == []
    assert side.known().place.at == ONE


def test_a_pin_holds_however_the_origin_is_spelled():
    side = Side(trust=trust({"https://api.example": [KEY.key]}), ask=lambda question: None)
    for root in ("https://api.example", "HTTPS://API.example:443", f"{ORIGIN}/v1"):
        side.see(ONE, "unsigned", root=root)
        assert side.recall(root) == []


@pytest.mark.spec("15.16")
@pytest.mark.parametrize("told_root", [None, "/v1", "/v1/sub"])
def test_a_reply_cannot_get_around_a_pin_by_where_it_says_that_the_contract_lives(told_root):
    """Whoever hides the header, or writes another, would have the reply taken for that of a contract without a pin."""
    side = Side(trust=trust({f"{ORIGIN}/v1": [KEY.key]}))
    side.root = told_root or "/v1"
    url = "https://api.example/v1/sub/x"
    assert side.memory.root_of(url) == f"{ORIGIN}/v1"
    side.at(TWO, {})
    side.see(ONE, "forged", root=side.memory.root_of(url), path="/v1/sub/x", told_root=told_root)
    expected = ORIGIN + side.root
    assert [asked.partition("?")[0] for asked in side.asked] == [f"{expected}/contract/signed"]
    assert list(side.memory.store.entries()) == []
    assert side.memory.root_of(url) == expected
    side.see(TWO, "good", root=side.memory.root_of(url), path="/v1/sub/x", told_root=told_root)
    assert side.recall(expected) == ["good"]


def test_beside_a_pin_nothing_needs_a_key():
    side = Side(trust=trust({f"{ORIGIN}/v1": [KEY.key]}))
    for path in ("/v2/x", "/v12", "/"):
        assert side.memory.root_of(f"https://api.example{path}") == ORIGIN


@pytest.mark.spec("15.10")
def test_what_is_signed_for_another_root_is_refused(side):
    side.root = "/v1"
    side.at(TWO, NOTHING_MOVED)
    side.see(TWO)
    assert "is of a contract at '/v1', not of this one" in side.of(Distrusted)[0].why
    assert (side.known().vouched.at, side.recall()) == (ONE, [])


def test_an_answer_that_does_not_say_what_has_moved_is_asked_for_again_and_moves_nothing(side):
    side.at(TWO, {})
    side.see(TWO)
    assert 1 < len(side.asked) < 6
    assert (side.known().place.at, side.known().vouched.at) == (ONE, ONE)
    assert side.recall() == []
    side.at(TWO, NOTHING_MOVED)
    side.see(TWO)
    assert side.recall() == ["old"]


def test_a_reply_that_raises_a_doubt_while_a_key_is_asked_is_asked_about_too(side):
    """The answer is older than the doubt."""

    def doubting():
        side.after_signing = lambda: None
        side.at(THREE, ALL_MOVED)
        side.see(THREE)

    side.at(TWO, NOTHING_MOVED)
    side.after_signing = doubting
    side.see(TWO)
    assert (side.known().place.at, side.known().vouched.at) == (THREE, THREE)
    assert side.recall() == []
    assert list(side.memory.store.entries()) == []
    assert side.of(Distrusted) == []


def test_a_key_that_is_asked_while_all_is_forgotten_vouches_for_nothing_that_was(side):
    side.at(TWO, NOTHING_MOVED)
    side.after_signing = lambda: side.memory.forget(ORIGIN)
    side.memory.refresh(ORIGIN)
    assert (side.known().place.at, side.known().vouched) == (None, None)
    side.after_signing = lambda: None
    side.at(THREE, {})
    side.see(THREE, "new")
    assert side.recall() == ["new"]
    assert (side.of(Distrusted), side.of(LogLost)) == ([], [])


@pytest.mark.parametrize("last", [TWO, THREE])
def test_threads_that_ask_at_the_same_time_end_where_the_log_does(tmp_path, last):
    """Whichever answer comes last."""
    side = Side(SqliteStore(tmp_path / "memory.db"))
    side.see(ONE)
    ends, both_have_asked = iter((TWO, THREE)), threading.Barrier(2, timeout=60)
    of_thread, first_is_taken = threading.local(), threading.Event()

    def state_now():
        of_thread.end = THREE if hasattr(of_thread, "end") else next(ends)
        return of_thread.end, NOTHING_MOVED

    def after_signing():
        if hasattr(of_thread, "has_waited"):
            return
        of_thread.has_waited = True
        both_have_asked.wait()
        if of_thread.end == last:
            first_is_taken.wait(timeout=60)

    def refresh():
        side.memory.refresh(ORIGIN)
        first_is_taken.set()

    side.state_now, side.after_signing = state_now, after_signing
    threads = [threading.Thread(target=refresh) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (side.known().place.at, side.known().vouched.at) == (THREE, THREE)
    assert side.of(Distrusted) == []
    side.memory.store.close()
