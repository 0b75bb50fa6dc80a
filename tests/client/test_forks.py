"""A process that forks while threads use a memory: the child hangs on nothing that they held, and knows what they have not found out."""

import json
import os
import threading

import pytest

from shelflife.client import Memory, Reply, SqliteStore
from shelflife.client.circuit import Circuit
from tests.client.forking import in_child, recalled
from tests.client.responses import rejection, said

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

MOVED_ON = said({"table_versions": {"t": "2"}, "rules_version": "abc"})


FORKING = """
import sys
from tests.client import forking
doing, *arguments = sys.argv[1:]
print(getattr(forking, doing)(*arguments))
"""


@pytest.mark.parametrize("kind", ["in process", "SQLite"])
@pytest.mark.parametrize("does", ["recalls", "observes"])
def test_a_child_uses_the_memory_whatever_the_threads_of_its_parent_were_doing(nursery, kind, does, tmp_path):
    path = tmp_path / "memory.db" if kind == "SQLite" else ""
    with nursery.forked(FORKING, "use_a_memory", path, does) as process:
        assert process.stdout.read() == "True\n"


def test_a_fork_goes_well_while_other_threads_make_memories(nursery, tmp_path):
    with nursery.forked(FORKING, "make_memories", tmp_path / "memory.db") as process:
        assert process.stdout.read() == "True\n"


def test_what_a_thread_of_the_parent_was_asking_about_is_in_doubt_in_the_child_until_that_has_asked():
    memory = Memory()
    memory.observe(said(rejection()))
    is_asking, may_answer = threading.Event(), threading.Event()

    def answer(question):
        since = {"since": "1", "version": "2", "known": True, "added": [], "removed": [], "changed": []}
        if "/changes" in question.url:
            return Reply(200, json.dumps({"tables": {"t": since}, "table_versions": {"t": "2"}}).encode())
        return Reply(200, json.dumps({"table_versions": {"t": "2"}, "rules_version": "abc"}).encode())

    def slow(question):
        is_asking.set()
        may_answer.wait(60)
        return answer(question)

    def finds_out():
        before = recalled(memory)
        memory.observe(MOVED_ON, answer)
        return (len(before), len(recalled(memory))) == (0, 1)

    asking = threading.Thread(target=memory.observe, args=(MOVED_ON, slow))
    asking.start()
    try:
        assert is_asking.wait(60)
        assert in_child(finds_out)
        assert recalled(memory) == []
    finally:
        may_answer.set()
        asking.join()
    assert len(recalled(memory)) == 1


def test_whoever_lets_go_of_a_file_takes_nothing_from_a_child_that_uses_it(tmp_path):
    store = SqliteStore(tmp_path / "memory.db")
    memory = Memory(store)
    memory.observe(said(rejection()))
    is_used, is_let_go = os.pipe(), os.pipe()

    def uses_it_before_and_after():
        memory.observe(said(rejection(parameters={"x": 2})))
        os.write(is_used[1], b".")
        os.read(is_let_go[0], 1)
        memory.observe(said(rejection(parameters={"x": 3})))
        return [one.parameters for one in recalled(memory)] == [{"x": 3}]

    def lets_go():
        os.read(is_used[0], 1)
        store.close()
        os.write(is_let_go[1], b".")

    letting_go = threading.Thread(target=lets_go)
    letting_go.start()
    assert in_child(uses_it_before_and_after)
    letting_go.join()
    assert [one.parameters for one in recalled(memory)] == [{"x": 3}]
    store.close()
    for end in (*is_used, *is_let_go):
        os.close(end)


def test_a_child_asks_a_store_though_a_thread_of_its_parent_was_at_the_circuit():
    circuit, is_held = Circuit(), threading.Event()

    def holding():
        with circuit._lock:
            is_held.set()
            threading.Event().wait(0.1)  # the fork is to begin meanwhile

    holder = threading.Thread(target=holding)
    holder.start()
    assert is_held.wait(60)
    assert in_child(lambda: circuit.check() > 0)
    holder.join()
