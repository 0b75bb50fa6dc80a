"""A loop written by hand: whatever its client makes of a message is understood, and what is not is told."""

import json
import socket
import threading
from contextlib import contextmanager

import pytest

from shelflife.client import Call, Exchange, Guard, Memory, Reply, asking, exchange, origin_of
from shelflife.client.events import Ignored, Stored
from tests.client.by_hand import FIX, JSON
from tests.document_programs import ROOT as PROJECT
from tests.document_programs import document_blocks

ROOT, OPERATION = "https://api.example:443", "POST /x"
BODY = {"table_versions": {"t": "1"}, "recovery_feedback": {"suggestions": [FIX]}}
REFUSAL = Reply(422, json.dumps(BODY), {"Content-Type": "application/json"})


@pytest.mark.parametrize(
    "spelled",
    [
        "https://api.example",
        "https://api.example/",
        "HTTPS://API.Example:443",
        "https://me:secret@api.example",
        ROOT,
    ],
)
def test_a_root_is_the_same_however_it_is_spelled(spelled):
    memory = Memory()
    [stored] = memory.observe(Exchange(spelled, OPERATION, {}, REFUSAL))
    assert isinstance(stored, Stored)
    assert stored.entry.root == ROOT
    for root in (spelled, ROOT):
        assert memory.recall(root, OPERATION, {}) == [stored.entry]
        assert memory.amend(root, OPERATION, {}).request == {"x": 1}
    assert memory.knows_versions(spelled)
    assert memory.forget(spelled) == 1


def test_a_root_below_a_path_is_another():
    memory = Memory()
    memory.observe(Exchange("https://api.example/shop/", OPERATION, {}, REFUSAL))
    assert len(memory.recall("https://api.example:443/shop", OPERATION, {})) == 1
    assert memory.recall(ROOT, OPERATION, {}) == []


@pytest.mark.parametrize(
    "spelled", ["https://bücher.example", "https://BÜCHER.example", "https://bu\u0308cher.example"]
)
def test_a_host_is_spelled_as_it_is_looked_up(spelled):
    assert origin_of(spelled) == "https://xn--bcher-kva.example:443"


@pytest.mark.parametrize(
    "wrong", ["https://faß.example", "api.example", "ftp://api.example", "https://", "", "https://a:x"]
)
def test_what_names_no_server_is_told_to_whoever_wrote_it(wrong):
    """The first is another host to some clients than to others."""
    memory = Memory()
    for verb in (
        lambda: memory.recall(wrong, OPERATION, {}),
        lambda: memory.observe(Exchange(wrong, OPERATION, {}, REFUSAL)),
        lambda: memory.contract_at(wrong),
    ):
        with pytest.raises(ValueError, match="is not the URL of a server: write it as"):
            verb()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(422, json.dumps(BODY)), "does not say what its body is: give its headers with it"),
        (Reply(422, json.dumps(BODY | {"table_versions": 1}), JSON), "malformed"),
        (Reply(422, b'{"table_versions":', JSON), "malformed"),
        (Reply(422, json.dumps({"recovery_feedback": BODY["recovery_feedback"]}), JSON), "of which state"),
    ],
)
def test_why_nothing_is_learned_is_told(reply, why):
    told = []
    memory = Memory(on_event=told.append)
    [event] = memory.observe(Exchange(ROOT, OPERATION, {}, reply))
    assert told == [event]
    assert isinstance(event, Ignored)
    assert why in event.why


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"{}", JSON),
        Reply(200, "[1]", JSON),
        Reply(204, b""),
        Reply(500, "oops {}"),
        Reply(200, "hello"),
    ],
)
def test_a_reply_without_a_contract_is_not_worth_a_word(reply):
    assert Memory().observe(Exchange(ROOT, OPERATION, {}, reply)) == []


class Clock:
    """Stands still, unless somebody waits."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def test_all_questions_of_a_step_have_one_bound(monkeypatch, caplog):
    """However long each of them may take by what its client allows."""
    clock = Clock()
    monkeypatch.setattr(asking, "time", clock)
    asked = []

    def slow(question):
        asked.append(question.url)
        clock.now += 2.0

    memory = Memory(ask=slow, most_evictions=None)
    tables = [f"{'t' * 120}{number}" for number in range(200)]
    for version in "12":
        fixes = [
            FIX
            | {
                "tables": [{"table": table, "version": version}],
                "rows": [f"{table}:k"],
                "when": {"of": table},
            }
            for table in tables
        ]
        for some in range(0, 200, 50):
            body = {"table_versions": dict.fromkeys(tables, version)}
            feedback = {"recovery_feedback": {"suggestions": fixes[some : some + 50]}}
            memory.observe(Exchange(ROOT, OPERATION, {}, Reply(422, json.dumps(body | feedback), JSON)))
    assert len(asked) == 3
    assert clock.now == 6.0
    assert "has not answered within 5 seconds" in caplog.text


BROKEN_OFF = {
    "in the body": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
    "in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    "in the headers": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "at once": b"",
    "with no HTTP": b"SSH-2.0-OpenSSH\r\n",
}


@contextmanager
def breaking_off(how):
    """A server whose version moves with each reply, and whose answers to questions break off."""

    def serve():
        version = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                head = connection.recv(65536)
                if b"/contract/" in head.partition(b"\r\n")[0]:
                    connection.sendall(how)
                    continue
                version += 1
                fix = FIX | {"tables": [{"table": "t", "version": str(version)}]}
                said = {"table_versions": {"t": str(version)}, "recovery_feedback": {"suggestions": [fix]}}
                body = json.dumps(said).encode()
                length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
                connection.sendall(b"HTTP/1.1 422 No\r\nContent-Type: application/json\r\n" + length + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("how", BROKEN_OFF)
def test_the_loop_of_the_documents_goes_on_when_an_answer_breaks_off(how, tmp_path, monkeypatch):
    blocks = document_blocks(PROJECT / "docs" / "guides" / "agents.md")
    loop = next(text for name, _, text in blocks if name == "loop.py").partition("\ntask = ")[0]
    monkeypatch.chdir(tmp_path)
    with breaking_off(BROKEN_OFF[how]) as address:
        names = {}
        exec(loop.replace("http://127.0.0.1:8000", address), names)
        answer = names["call"](f"{address}/contract/state", None, {})
        assert answer is None or answer.body == b""  # to urllib, headers that break off are at their end
        call = Call(address, "POST /subscriptions", {}, guard=Guard())
        replies = [exchange(names["memory"], call, names["answer"]) for _ in range(3)]
    assert [reply.status for reply in replies] == [422] * 3


def test_whoever_answers_may_fail_in_any_way(caplog):
    def broken(question):
        raise LookupError("no such luck")

    memory = Memory(ask=broken)
    memory.observe(Exchange(ROOT, OPERATION, {}, REFUSAL))
    moved = {"table_versions": {"t": "2"}}
    memory.observe(Exchange(ROOT, OPERATION, {}, Reply(200, json.dumps(moved), JSON)))
    assert memory.recall(ROOT, OPERATION, {}) == []
    assert "no such luck" in caplog.text
