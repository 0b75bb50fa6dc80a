"""Exactness over random histories of all that can happen, on the real server and the real memory.

Each history draws what it is played with: the form, preconditions, a feed, keys, a disclosure, a log and a memory in files or not,
bounds. `SHELFLIFE_TESTS=long` plays many more. A history that breaks something is shrunk and told.
"""

import os
import random
import re
import threading
import time
from collections import Counter

import msgspec
import pytest

from shelflife.client import Question
from tests.histories.drawing import TRACES, drawn_moves, drawn_setting
from tests.histories.history import History, Setting
from tests.histories.moves import verbs_of
from tests.histories.servers import Gate
from tests.positions.histories import Broken
from tests.positions.searching import shrunk

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"
PARTS, HISTORY_COUNT = (range(100), 200) if IS_LONG else (range(2), 60)
SETTINGS = (
    Setting(),
    Setting(conditional=True, has_file=True),
    Setting(has_keys=True, keeps_file=True),
    Setting(discloses="counts", most_evictions=0),
    Setting(form="full", conditional=True, most_entries=3),
    Setting(form="mixed"),
)


def drawn(seed):
    chance = random.Random(seed)
    setting = drawn_setting(chance)
    return setting, drawn_moves(chance, setting)


def assert_holds(setting, moves, kind=History):
    history = kind(setting)
    try:
        history.play(moves)
    except Broken:
        left = shrunk(moves, setting, kind=kind)
        told = kind(setting)
        with pytest.raises(Broken) as broken:
            told.play(left)
        pytest.fail("\n".join([str(setting), *told.lines, f"=> {broken.value}"]), pytrace=False)
    return history


@pytest.mark.parametrize("part", PARTS)
def test_random_histories_are_exact(part):
    for seed in range(part * HISTORY_COUNT, (part + 1) * HISTORY_COUNT):
        assert_holds(*drawn(seed))


@pytest.mark.parametrize("name", TRACES)
def test_hand_made_histories_are_exact(name):
    for setting in SETTINGS:
        assert_holds(setting, TRACES[name])


def test_everything_happens_that_can():
    settings, moves = zip(*map(drawn, range(2 * 60)), strict=True)  # those that are always played
    possible = verbs_of(
        Setting(has_feed=True, has_keys=True, keeps_file=True, splits=True, has_flaky_store=True)
    )
    assert {move.verb for each in moves for move in each} == set(possible)
    assert all(len({getattr(one, name) for one in settings}) > 1 for name in Setting._fields)
    events, recall_count = Counter(), 0
    for setting, each in zip(settings[:30], moves, strict=False):
        history = assert_holds(setting, each)
        events.update(history.event_counts)
        recall_count += history.recall_count
    assert {"Stored", "Evicted", "Applied", "LogLost", "Suspected", "Distrusted"} <= set(events)
    assert recall_count > 1000


def told_of(setting, moves):
    """What happens in a history. Positions and marks are drawn anew each time, and are numbered in the order in which it names them."""
    history, names = assert_holds(setting, moves), {}
    drawn_anew = r"(?<= at )(\*|[A-Za-z]\w{5}\d+)(?::(\w{6}))?"
    return [
        re.sub(
            drawn_anew, lambda found: str([names.setdefault(one, len(names)) for one in found.groups()]), line
        )
        for line in history.lines
    ]


def test_a_history_is_the_same_each_time_that_it_is_played(monkeypatch):
    """Also where somebody listens, and is told what was looked up in a thread, be it slow: else what breaks could not be shrunk."""
    with_feed = [one for one in map(drawn, range(100, 130)) if one[0].has_feed]  # it shows in 115
    assert len(with_feed) > 4
    told = [told_of(*one) for one in with_feed]
    read = Gate.read

    def read_slowly(gate, *arguments):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.002)
        return read(gate, *arguments)

    monkeypatch.setattr(Gate, "read", read_slowly)
    assert [told_of(*one) for one in with_feed] == told


class SayingThatNothingHasMoved(History):
    """Somebody answers all questions about the log for the server."""

    def serve(self, pending, worker):
        served = super().serve(pending, worker)
        named = pending.asked.named
        if isinstance(pending.step, Question) and "from=" in pending.step.url and named.position is not None:
            body = msgspec.json.encode({"to": str(named.position), "nonce": named.nonce})
            served = served._replace(reply=msgspec.structs.replace(served.reply, body=body))
            pending.served[-1] = served
        return served


class SayingLessThanWhatHasMoved(History):
    """Somebody leaves out which rows it were."""

    def serve(self, pending, worker):
        served = super().serve(pending, worker)
        body = served.reply.body.replace(b'"changed":[', b'"known":false,"changed":[')
        served = served._replace(reply=msgspec.structs.replace(served.reply, body=body))
        pending.served[-1] = served
        return served


@pytest.mark.parametrize(
    ("kind", "properties"), [(SayingThatNothingHasMoved, {"S", "L"}), (SayingLessThanWhatHasMoved, {"N"})]
)
def test_what_is_not_so_is_found(kind, properties):
    """Whoever judges the histories sees what an honest server never does."""
    found, seeds = set(), iter(range(100))
    while not properties <= found and (seed := next(seeds, None)) is not None:
        setting, moves = drawn(seed)
        try:
            kind(setting).play(moves)
        except Broken as broken:
            found.add(str(broken)[0])
    assert properties <= found
