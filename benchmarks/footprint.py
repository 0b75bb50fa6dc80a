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
_FLOOR = "what it imports of others"
_MOST_TIMES_LONGER = 2.0
_MOST_MEGABYTES = 10.0

REMARKS = {
    _SUBJECT: (
        "Each import in a fresh process, in turns, with bytecode that was compiled before. The memory is what is resident after the import and"
        " was not before; that of msgspec, which every import of ours includes, is taken off.",
        "What it imports of others: the same modules of Python and of msgspec without any of ours. What is beyond that is the code of ours, of"
        " which most is read and checked for its date.",
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
    imports = {module: module for module in _MODULES} | {_FLOOR: _imported_of_others()}
    for round in range(4 if is_quick else 21):
        for module, names in imports.items():
            took_s, megabytes = _imported(names)
            if round:  # the first may have compiled it
                took_ms[module].append(took_s * 1e3)
                added_mb[module].append(megabytes)
    for module in _MODULES:
        yield median_figure(_SUBJECT, f"import {module}", took_ms[module], "ms")
    yield median_figure(_SUBJECT, f"import {_MODULES[1]}: {_FLOOR}", took_ms[_FLOOR], "ms")
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


def _imported(modules: str) -> tuple[float, float]:
    """How long it took, in seconds, and how much it has added, in megabytes."""
    took_s, megabytes = map(float, _told_by(_PROGRAM.format(module=modules)).split())
    return took_s, megabytes


def _imported_of_others() -> str:
    """The modules that an import of ours brings along, in their order. Those with an underscore come with the ones that have none."""
    names = _told_by(
        f"import sys; before = {{*sys.modules}}; import {_MODULES[1]}; print(*sys.modules.keys() - before)"
    )
    others = [name for name in names.split() if not name.startswith(("shelflife", "_")) and "._" not in name]
    in_order = _told_by(f"import sys, {_MODULES[1]}; print(*sys.modules)").split()
    return ", ".join(sorted(others, key=in_order.index))


def _told_by(program: str) -> str:
    """What a program prints in a fresh process that may keep bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
