"""What tests of memories in engines have in common."""

import time

OPERATION = "POST /x"
SLACK_S = 2.0
"""These machines have other work to do."""


def trips_of(memory, do):
    """How often the engine is asked while something is done."""
    store, counted = memory.store, []
    for name in ("_look", "_tagged", "_written", "_note"):
        verb = getattr(store, name)
        setattr(store, name, lambda *given, verb=verb, name=name: (counted.append(name), verb(*given))[1])
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
