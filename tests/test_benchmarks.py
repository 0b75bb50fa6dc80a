"""The benchmarks run; what they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figure, at_least
from benchmarks.report import Run


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


def test_a_page_begins_with_which_targets_are_met(tmp_path):
    figures = [
        Figure(subject="speed", what=f"run {number}", measured=number, unit="", target=at_least(2))
        for number in (1.0, 2.0)
    ]
    run = Run(
        name="page",
        measured_on="2026-01-01",
        is_smoke_run=False,
        took_s=1,
        figures=tuple(figures),
        about="",
        packages=(),
    )
    _, page = run.write_to(tmp_path)
    head, _, _ = page.read_text("utf-8").partition("## Speed")
    assert "**In short**: 1 of 2 targets are met. These are not:" in head
    assert "- run 1.0: 1.000, and it should be at least 2." in head
    assert "run 2.0" not in head
