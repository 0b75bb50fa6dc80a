"""The benchmarks run; what they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path


def test_a_quick_run_goes_through_every_subject(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--out", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    pages = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    subjects = {name: {figure["subject"] for figure in page["figures"]} for name, page in pages.items()}
    assert subjects == {
        "server": {"throughput", "reload", "walk", "workers"},
        "memory": {"recall", "observe", "eviction", "amend", "marks", "rivals", "footprint"},
        "wire": {"wire bytes", "feed fan-out", "signing"},
        "fleet": {"shared memory", "shared log", "shared log throughput"},
    }
