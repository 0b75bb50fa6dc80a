"""What interrupts a memory anywhere, such as Ctrl-C or a stack that is at its end: nothing stale is recalled, and it can be used on."""

import json
import sys
from contextlib import closing, contextmanager

import pytest

from shelflife.client import Exchange, Memory, Reply, SqliteStore
from shelflife.client.in_process import InProcessStore
from shelflife.contract.values import DEEPEST_VALUE

ROOT, OPERATION = "http://h", "POST /x"


@pytest.fixture(params=["in process", "SQLite"])
def store(request, tmp_path):
    if request.param == "in process":
        yield InProcessStore()
        return
    with closing(SqliteStore(tmp_path / "memory.db")) as opened:
        yield opened


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return {"deep": value}


def said(request, version, code=None):
    """What a server that knows only the paper says: its fix is for the whole request."""
    body = {"success": False, "table_versions": {"t": version}}
    if code is not None:
        fix = {"type": "F", "parameters": {"code": code}, "cache_hint": "cacheable", "table": "t"}
        body["recovery_feedback"] = {"suggestions": [fix]}
    headers = {"content-type": "application/json"}
    return Exchange(ROOT, OPERATION, request, Reply(422, json.dumps(body).encode(), headers))


class Step:
    """A memory that has learned A, is told that A has gone and maybe what takes its place, and is interrupted in this."""

    def __init__(self, store, request, code):
        self.request = request
        self.memory = Memory(store, most_evictions=None)
        self.memory.forget(ROOT)
        self.memory.observe(said(request, "1", "A"))
        assert self.recalled() == ["A"]
        self.moved_on = said(request, "2", code)

    def recalled(self):
        found = self.memory.recall(ROOT, OPERATION, self.request)
        return [entry.parameters["code"] for entry in found]

    def assert_goes_on(self):
        self.memory.observe(said(self.request, "2"))
        assert self.recalled() in ([], ["B"])
        self.memory.observe(said(self.request, "3", "C"))
        assert self.recalled() == ["C"]
        assert self.memory.forget(ROOT) == 1
        assert self.memory.store.count(ROOT, "t") == 0
        assert list(self.memory.store.entries()) == []


@contextmanager
def interrupted_at(number):
    """Ctrl-C where one of our functions begins or goes on, which is where Python looks for it. (None can be prepared for it in an exit.)"""
    calls = iter(range(number))

    def trace(frame, event, argument):
        is_ours = "shelflife" in frame.f_code.co_filename and frame.f_code.co_name != "__exit__"
        if is_ours and next(calls, None) is None:
            sys.settrace(None)
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("code", [None, "B"])
def test_whatever_call_is_interrupted(store, code):
    number, is_interrupted = 0, True
    while is_interrupted:
        step = Step(store, {"a": 1}, code)
        try:
            with interrupted_at(number):
                step.memory.observe(step.moved_on)
            is_interrupted = False
        except KeyboardInterrupt:
            pass
        step.assert_goes_on()
        number += 1
    assert number > 50


def called_with(frames_left, do):
    """Do something with so many frames of the stack left."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back

    def deeper(levels):
        return do() if levels <= 0 else deeper(levels - 1)

    return deeper(sys.getrecursionlimit() - depth - frames_left)


@pytest.mark.parametrize("levels", [0, DEEPEST_VALUE - 1, DEEPEST_VALUE + 1, 900])
def test_wherever_the_stack_ends(store, levels):
    most = 120
    for frames_left in range(5, most):
        step = Step(store, nested(levels), "B") if levels < DEEPEST_VALUE else None
        memory = step.memory if step else Memory(store)
        moved_on = said(nested(levels), "2", "B")
        try:
            called_with(frames_left, lambda: memory.observe(moved_on))  # noqa: B023 - it is called at once
        except RecursionError:
            assert frames_left < most - 10  # which is enough, however deep the request is
        if step:
            step.assert_goes_on()
