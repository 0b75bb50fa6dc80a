"""What tests of memories in engines have in common."""

import time

from shelflife.client.near import LONGEST_LAG_S

OPERATION = "POST /x"
SLACK_S = 10.0
"""These machines have other work to do."""


def trips_of(memory, do, on_trip=lambda: None):
    """How often the engine is asked while something is done."""
    store, counted = memory.store, []
    for name in ("_look", "_tagged", "_written", "_note"):
        verb = getattr(store, name)
        setattr(
            store,
            name,
            lambda *given, verb=verb, name=name: (counted.append(name), on_trip(), verb(*given))[2],
        )
    try:
        do()
    finally:
        for name in ("_look", "_tagged", "_written", "_note"):
            delattr(store, name)
    return counted


def eventually(is_so, longest_s=60.0):
    until = time.monotonic() + longest_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_recalled_no_longer_than_the_lag(near, request):
    """Recall until nothing is found any more: what was forgotten just now may be found for as long as the cache may lag, and no longer."""
    forgotten_at = begun_at = time.monotonic()
    while near.recall("http://h", OPERATION, request):
        assert begun_at - forgotten_at <= LONGEST_LAG_S
        begun_at = time.monotonic()
