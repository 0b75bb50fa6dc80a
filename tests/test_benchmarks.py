"""The benchmarks run; what they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path


def test_a_quick_run_goes_through_every_subject(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, timeout=240)
    [results] = tmp_path.glob("*.json")
    subjects = {figure["subject"] for figure in json.loads(results.read_text())["figures"]}
    assert {"throughput", "reload", "walk"} <= {subject.lower() for subject in subjects}
