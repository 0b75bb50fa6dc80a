"""The report as people see it: nothing is cut at any width, figures are at one scale, and no line begins with a percent sign."""

import html
import json
import re
import subprocess
import sys

import msgspec
import pytest

from shelflife.lab.exhibits import collection_of
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.exhibits.report import report_html
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.preflight import preflight
from shelflife.lab.scores import score_of
from shelflife.lab.spec import Conduct
from tests.browser.chromium import IS_MISSING, WHY, a_browser
from tests.lab.played_runs import QWEN, as_if, as_measured, recorded

WIDTHS = [320, 360, 480, 600, 768, 900, 1024, 1152, 1280, 1440, 1600, 1920]
MODEL = "openai-api/local/qwen2.5-coder-1.5b-instruct-q4_k_m"

LOOKED_AT = """
<script>
addEventListener("load", () => {
  const seen = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument;
    const boxes = [page.documentElement, ...page.querySelectorAll(".box, .panels, td, th")];
    seen[frame.width] = {
      cut: boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent.trim().slice(0, 60)),
      tables: [...page.querySelectorAll("table")].filter((one) => getComputedStyle(one).display == "table").length,
      scales: [...new Set([...page.querySelectorAll("figure svg")].map(
        (one) => (one.getBoundingClientRect().width / one.viewBox.baseVal.width).toFixed(3)))],
    };
  }
  document.title = JSON.stringify(seen);
});
</script>
"""


@pytest.fixture(scope="module")
def page():
    scores = [score_of(recorded("drifted", arm)) for arm in ("A0", "A1", "A2", "A2D", "exact")]
    conducts = [Conduct(form="compact", fresh="feed", precondition=True), Conduct(fresh="check")]
    scores += [score_of(recorded("drifted", "A2D", conduct)) for conduct in conducts]
    scores += [score_of(recorded("injection", arm)) for arm in ("A0", "A2D")]
    scores += [score_of(recorded(stream, "A2D")) for stream in ("rules", "recipes", "rotations-2")]
    family = Conduct(match="family")
    scores += [score_of(recorded("drifted", "A2D", family, level=level)) for level in (1, 4)]
    scores += [score_of(recorded("drifted", "A2D", consume="2"))]
    measured = [as_measured(score, QWEN, wording=name) for score in scores for name in ("plain", "formal")]
    scores += [as_if(score, planner=planner) for score in scores for planner in (MODEL, "sim:gpt-5-mini")]
    scores += measured
    tried = [
        preflight(simulated_planner(name, 0, frozenset()), trials=2) for name in ("compliant", "forgetful")
    ]
    tried += [msgspec.structs.replace(one, planner=MODEL, planner_kind="model") for one in tried[:1]]
    collection = collection_of(scores, tried)
    shown = {exhibit.key for exhibit in collection.exhibits}
    assert {"wire-fields", "vectors", "consumption", "preflight", "uncompleted"} <= shown
    figures, _ = figures_of(collection.runs)
    return report_html(collection, figures)


@pytest.mark.skipif(IS_MISSING, reason=WHY)
def test_nothing_is_cut_at_any_width_and_figures_are_at_one_scale(page, tmp_path):
    frames = [f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}">' for width in WIDTHS]
    (tmp_path / "frames.html").write_text(
        "<!doctype html>" + "</iframe>".join([*frames, LOOKED_AT]), encoding="utf-8"
    )
    with a_browser() as browser:
        shown = browser.new_page()
        shown.goto((tmp_path / "frames.html").as_uri())
        seen = json.loads(shown.title())
    assert {width: one["cut"] for width, one in seen.items()} == {str(width): [] for width in WIDTHS}
    assert len({scale for one in seen.values() for scale in one["scales"]}) == 1
    assert seen["320"]["tables"] == 0
    assert seen["1280"]["tables"] == page.count("<table ")


def test_no_line_of_the_report_is_broken_before_a_percent_sign(page):
    said = re.sub(r"<style>.*?</style>|<svg .*?</svg>", "", page, flags=re.DOTALL)
    assert "\N{NO-BREAK SPACE}%" in said
    assert re.findall(r"\d\s*[ \n]%", said) == []


def test_the_tables_do_not_wait_for_matplotlib():
    program = "import sys, shelflife.lab.exhibits; print('matplotlib' in sys.modules)"
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "False"
