"""The clock that goes on while a machine sleeps."""

import subprocess
import sys

import pytest

SLEPT = ["unshare", "--user", "--map-root-user", "--time", "--boottime", "3600"]
"""Starts a program as on a machine that has slept for an hour, in a time of its own."""

COMPARED = """
import time
from shelflife.clocks import unsleeping_s
print(unsleeping_s() - time.monotonic())
"""


def _can_have_slept():
    try:
        return subprocess.run([*SLEPT, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_time_in_which_a_machine_slept_has_passed():
    if not _can_have_slept():
        pytest.skip("no program can be given a time of its own here")
    told = subprocess.run(
        [*SLEPT, sys.executable, "-c", COMPARED], capture_output=True, text=True, check=True
    )
    assert float(told.stdout) == pytest.approx(3600, abs=1)
