"""What it costs to have the memory at all: the time of its import and the memory that it takes, beside those of msgspec."""

import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

from benchmarks.figures import Figure, at_most, median_figure

__all__ = ["REMARKS", "measure"]

_SUBJECT = "footprint"
_MODULES = ("msgspec", "shelflife.client")
_MOST_TIMES_LONGER = 2.0
_MOST_MEGABYTES = 10.0

REMARKS = {
    _SUBJECT: (
        "Each import in a fresh process, in turns, with bytecode that was compiled before. The memory is what is resident after the import and"
        " was not before; that of msgspec, which every import of ours includes, is taken off.",
    )
}

_PROGRAM = """
import sys, time
def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * 4096 / 1e6
before, began = resident(), time.perf_counter()
import {module}
print(time.perf_counter() - began, resident() - before)
"""


def measure(is_quick: bool) -> Iterator[Figure]:
    """Import both in turns."""
    took_ms: defaultdict[str, list[float]] = defaultdict(list)
    added_mb: defaultdict[str, list[float]] = defaultdict(list)
    for round in range(4 if is_quick else 21):
        for module in _MODULES:
            took_s, megabytes = _imported(module)
            if round:  # the first may have compiled it
                took_ms[module].append(took_s * 1e3)
                added_mb[module].append(megabytes)
    for module in _MODULES:
        yield median_figure(_SUBJECT, f"import {module}", took_ms[module], "ms")
    base, ours = (statistics.median(took_ms[module]) for module in _MODULES)
    yield Figure(
        subject=_SUBJECT,
        what="import shelflife.client against import msgspec: ratio of medians",
        measured=ours / base,
        unit="",
        sample_count=len(took_ms[_MODULES[1]]),
        target=at_most(_MOST_TIMES_LONGER),
    )
    base, ours = (statistics.median(added_mb[module]) for module in _MODULES)
    yield Figure(
        subject=_SUBJECT,
        what="memory that import shelflife.client adds to that of msgspec",
        measured=ours - base,
        unit="MB",
        sample_count=len(added_mb[_MODULES[1]]),
        target=at_most(_MOST_MEGABYTES),
    )


def _imported(module: str) -> tuple[float, float]:
    """How long it took, in seconds, and how much it has added, in megabytes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(module=module)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    took_s, megabytes = map(float, done.stdout.split())
    return took_s, megabytes
