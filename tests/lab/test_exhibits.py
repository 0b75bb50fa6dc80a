"""Exhibits are made from records alone, say where each number comes from, and escape what others have named."""

import csv
import io
import re
import shutil
import subprocess
from contextlib import redirect_stdout
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import msgspec
import pytest

from shelflife.cli import main
from shelflife.client import EXACT
from shelflife.lab.arms import ARMS
from shelflife.lab.exhibits import ExhibitsError, Kind, collection_of, write_all
from shelflife.lab.exhibits.cells import DASH, count, kind_of, number, signed
from shelflife.lab.exhibits.figures import INKS, figures_of
from shelflife.lab.exhibits.latex import as_latex
from shelflife.lab.exhibits.markup import as_csv, as_markdown
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.exhibits.report import report_html
from shelflife.lab.intervals import difference_interval, mean_interval, rate_interval
from shelflife.lab.records import Model
from shelflife.lab.scores import FirstTry
from shelflife.lab.spec import Conduct, RunSpec
from tests.lab.exhibit_lines import line
from tests.lab.played_runs import QWEN, as_if, as_measured, executed

HAIKU = "sim:claude-haiku-4-5"
FORESEEN = "Figure: Stale uses against questions"
SPECS = [
    *(RunSpec("drifted", arm, "compliant") for arm in ("A0", "A1", "A2", "A2D")),
    *(RunSpec("drifted", arm, "compliant-last") for arm in ("A0", "A1", "A2", "A2D")),
    *(RunSpec("drifted", arm, "conservative") for arm in ("A0", "A2D")),
    *(RunSpec("drifted", arm, HAIKU, seed) for arm in ("A1", "A2D") for seed in (0, 1)),
    *(RunSpec("rules", arm, "compliant") for arm in ("A2D", "A2DC", "A2DR", "A2DO")),
    *(RunSpec("recipes", arm, planner) for arm in ("A1", "A2D") for planner in ("compliant", HAIKU)),
    *(RunSpec(f"rotations-{count}", "A2D", planner) for count in (1, 2) for planner in ("compliant", HAIKU)),
    *(RunSpec("organic-zones-40", arm, "compliant") for arm in ("A1", "exact")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def scores(folder):
    return executed(SPECS, folder).scores


@pytest.fixture(scope="module")
def collection(scores):
    return collection_of(scores)


@pytest.fixture(scope="module")
def figures(collection):
    drawn, left_out = figures_of(collection.runs)
    assert [one.title for one in left_out] == [FORESEEN]
    return drawn


@pytest.fixture(scope="module")
def reported(folder, scores, tmp_path_factory):
    """What the command makes of the records, and says."""
    made, said = tmp_path_factory.mktemp("report") / "made", io.StringIO()
    with redirect_stdout(said):
        assert main(["lab", "report", str(folder), "--out", str(made)]) == 0
    return made, said.getvalue()


@pytest.fixture(scope="module")
def exhibits(collection):
    return {exhibit.key: exhibit for exhibit in collection.exhibits}


def test_the_ladder_has_the_exact_numbers_and_the_papers_under_them(exhibits):
    here = line(exhibits["ladder"], "compliant")
    there = line(exhibits["ladder"], "gpt-5-mini", kind=Kind.PAPER)
    assert [here[f"Compliance (%): {arm}"] for arm in ("A1", "A2", "A2D")] == ["33.3", "100.0", "100.0"]
    assert [here[f"Post-drift funding (%): {arm}"] for arm in ("A1", "A2", "A2D")] == ["66.7", "0.0", "66.7"]
    assert (here["Gain: A2D\N{MINUS SIGN}A1"], here["Precision: A2"], here["Completed: A2"]) == (
        "+66.7",
        "0.25",
        "36/36",
    )
    same = [head for head in here if there[head] == here[head] != DASH]
    assert len(same) == 9


def test_what_was_not_run_is_a_dash_and_what_came_to_nothing_a_zero(exhibits):
    here = line(exhibits["ladder"], "conservative")
    assert here["Compliance (%): A1"] == here["Gain: A2D\N{MINUS SIGN}A1"] == DASH
    assert here["Compliance (%): A2D"] == "0.0"
    costs = line(exhibits["tokens-and-retries"], HAIKU)
    assert costs["Tokens saved (%): A2D"] == DASH


def test_the_price_sheet_splits_evictions_by_event_and_names_the_alerts(exhibits):
    sheet = exhibits["price-sheet"]
    stamp_only, lazy = line(sheet, "A2DR", "compliant"), line(sheet, "A2DC", "compliant")
    assert (stamp_only["First try"], stamp_only["Retries"], stamp_only["Evictions"]) == ("22", "14", "4 + 5")
    assert (lazy["Evictions"], lazy["Restamps"], lazy["Alerts at"]) == ("2", "3", "13/25")
    assert lazy["Tokens against lazy (%)"] == DASH
    assert stamp_only["Tokens against lazy (%)"].startswith("+")
    assert line(sheet, "A2D", "compliant")["Alerts at"] == "none"
    assert line(sheet, "A2D", "3 models")["Retries"] == "6"


def test_every_exact_number_is_held_against_the_paper(exhibits):
    lines = ([cell.text for cell in row.cells] for row in exhibits["agreement"].rows)
    held = {(exhibit, planner): tuple(counts) for exhibit, planner, *counts in lines}
    why = held["The ladder", "compliant-last"][-1]
    assert "unaided" in why
    assert held == {
        ("The ladder", "compliant"): ("9", "9", "nothing", DASH),
        ("The ladder", "compliant-last"): (
            "9",
            "8",
            "Post-drift funding A2: 0.0 here, 22.2 there",
            why,
        ),
        ("What was evicted and what was kept", "compliant, compliant-last"): ("1", "1", "nothing", DASH),
        ("What was evicted and what was kept", "compliant, compliant-last, conservative"): (
            "1",
            "1",
            "nothing",
            DASH,
        ),
        ("What no event touches", "compliant"): ("1", "1", "nothing", DASH),
        ("What no event touches", "compliant-last"): ("1", "1", "nothing", DASH),
        ("Episodes that were not completed", "compliant"): ("1", "1", "nothing", DASH),
        ("Episodes that were not completed", "compliant-last"): ("1", "1", "nothing", DASH),
        ("First try by class", "compliant"): ("8", "8", "nothing", DASH),
        ("First try by class", "compliant-last"): ("8", "8", "nothing", DASH),
        ("The price of noticing that rules changed", "compliant"): ("16", "16", "nothing", DASH),
        ("What it costs in tokens and retries", "compliant"): ("3", "3", "nothing", DASH),
        ("What it costs in tokens and retries", "compliant-last"): (
            "3",
            "2",
            "Retries per stream A0: 27 here, 24 there",
            why,
        ),
    }
    assert all(row.kind is Kind.EXACT for row in exhibits["agreement"].rows)


def test_the_report_counts_what_differs_from_the_paper(collection):
    assert ">60 of 62</dd>" in re.sub(r"\s+(?=<)|(?<=>)\s+", "", report_html(collection, []))


def test_of_two_values_the_one_that_was_used_makes_a_chance_valid(exhibits):
    last = line(exhibits["savings"], "compliant-last")
    assert (last["Validity (%): A1"], last["= chances taken (%): A1"]) == ("95.2", "95.2")


def test_both_domains_gain_in_the_class_whose_table_is_rotated(exhibits):
    ours, theirs = line(exhibits["domains"], "compliant"), line(exhibits["domains"], "claude-haiku-4-5")
    assert [ours[f"Recipes, celiac (%): {name}"] for name in ("A1", "A2D", "gain")] == [
        "25.0",
        "75.0",
        "+50.0",
    ]
    assert [theirs[f"Recipes, celiac (%): {name}"] for name in ("A1", "A2D", "gain")] == [
        "26.7",
        "75.0",
        "+48.3",
    ]
    assert theirs["Payments, governed (%): A1"] == "40.0"


def test_where_the_first_rotation_is_says_what_the_gap_comes_to(tmp_path):
    specs = [
        RunSpec(f"rotations-{which}", arm, "compliant")
        for which in ("1", "2", "3", "3-early")
        for arm in ("A1", "A2D")
    ]
    shown = {one.key: one for one in collection_of(executed(specs, tmp_path).scores).exhibits}
    lines = [line(shown["rotation-schedules"], f"rotations-{which}") for which in ("1", "2", "3", "3-early")]
    assert [one["Gap: A2D\N{MINUS SIGN}A1"] for one in lines] == ["+44.4", "+57.1", "+40.0", "+60.0"]
    assert [one["Right at A1"] for one in lines] == [
        one["Eligible episodes: before the first"] for one in lines
    ]
    assert "other-streams" not in shown


def test_the_papers_own_wire_stands_beside_what_a_fix_says_itself(tmp_path, scores):
    specs = [
        RunSpec("drifted", arm, "compliant", level=1, conduct=Conduct(match=match))
        for match in ("family", "request")
        for arm in ("A1", "A2D")
    ]
    collection = collection_of([*scores, *executed(specs, tmp_path).scores])
    shown = {one.key: one for one in collection.exhibits}
    assert "beyond" not in shown
    by_row = {row.cells[0].text: line(shown["matching"], row.cells[0].text) for row in shown["matching"].rows}
    assert {how: (row["Retries: A1"], row["Retries: A2D"]) for how, row in by_row.items()} == {
        "tasks of its family": ("14", "7"),
        "the identical request": ("26", "26"),
        "what it says itself (Level 6)": ("14", "7"),
        "published": ("14", "7"),
    }
    assert any("must have known both" in note for note in shown["matching"].notes)


def test_rotations_say_plainly_that_retries_grow_and_in_the_paper_do_not(exhibits):
    shown = exhibits["rotations"]
    assert [line(shown, "compliant")[f"Retries at A2D: {count}"] for count in (1, 2)] == ["7", "8"]
    assert line(shown, "claude-haiku-4-5", kind=Kind.PAPER)["Retries at A2D: 2"] == "near 7"
    assert any(
        "differs from the paper's near 7: compliant needs 7, 8 retries" in note for note in shown.notes
    )


def test_estimated_tokens_are_not_called_exact(exhibits, collection):
    costs, sheet = exhibits["tokens-and-retries"], exhibits["price-sheet"]
    row = next(row for row in costs.rows if row.cells[0].text == "compliant")
    kinds = {
        f"{column.group} {column.name}": cell.kind
        for column, cell in zip(costs.columns, row.cells, strict=True)
    }
    assert (kinds["Tokens saved (%) A2D"], kinds["Retries per stream A2D"]) == (Kind.ESTIMATED, Kind.EXACT)
    assert [row.cells[-1].kind for row in sheet.rows if row.kind is Kind.EXACT] == [Kind.ESTIMATED] * 4
    for render in (as_markdown, as_csv, as_latex):
        assert "deterministic, tokens estimated" in render(costs)
    assert Kind.ESTIMATED not in exhibits["ladder"].kinds
    assert '<span class="badge estimated">estimated</span>' in report_html(collection, [])


def test_tokens_that_a_vendor_billed_are_measured(scores):
    billed = [
        msgspec.structs.replace(
            as_if(one, planner="vendor/m"),
            planner_kind="model",
            tokens=msgspec.structs.replace(one.tokens, source="vendor"),
        )
        for one in scores
        if (one.spec.stream, one.spec.planner) == ("drifted", "compliant")
    ]
    costs = next(one for one in collection_of(billed).exhibits if one.key == "tokens-and-retries")
    assert costs.kinds == [Kind.MEASURED]


def test_savings_are_validity_times_compliance(exhibits):
    here = line(exhibits["savings"], "conservative")
    assert here["Validity (%): A2D"] == "95.2"
    assert here["\N{MULTIPLICATION SIGN} compliance (%): A2D"] == "50.0"
    assert here["= chances taken (%): A2D"] == "47.6"
    assert line(exhibits["savings"], HAIKU)["Validity (%): A2D"] == "95.2"


def test_the_shapes_of_hints_come_from_both_domains(exhibits):
    here = line(exhibits["hint-shapes"], "compliant")
    assert list(here.values())[1:] == ["90.0", "75.0", "80.0", "50.0", "66.7"]


def test_the_coverage_follows_from_the_strategies(exhibits):
    matrix = exhibits["coverage"]
    arms = [row.cells[0].text for row in matrix.rows if row.kind is Kind.EXACT]
    assert arms == [arm for arm in (*ARMS, EXACT.name) if arm != "A0"]
    graph = line(matrix, "A2DG", kind=Kind.EXACT)
    assert (graph["Validity: L5"], graph["Validity: L6"], graph["Validity: Diff"]) == ("✓", "", "✓")
    assert line(matrix, "A1", kind=Kind.EXACT)["Compliance: L3"] == "✓"
    assert graph["Compliance: L3"] == DASH


def test_each_number_says_where_it_comes_from(scores, exhibits):
    for exhibit in exhibits.values():
        for row in exhibit.rows:
            assert {cell.kind for cell in row.cells} <= {row.kind, Kind.ESTIMATED, None}
    assert {row.kind for row in exhibits["ladder"].rows} == {Kind.EXACT, Kind.TUNED, Kind.PAPER}
    measured = msgspec.structs.replace(scores[0], planner_kind="model")
    assert kind_of(measured) is Kind.MEASURED
    seeded = as_if(scores[0], planner="seeded:add=0.5")
    assert kind_of(seeded) is Kind.SIMULATED


def test_a_planner_that_is_tuned_says_so_in_every_format(exhibits, collection):
    for render in (as_markdown, as_csv, as_latex):
        assert "simulated, tuned to the paper" in render(exhibits["ladder"])
    assert "simulated, tuned to the paper" in report_html(collection, [])


def test_the_headline_takes_the_best_evidence_there_is(scores, collection):
    assert collection.headline_kind is Kind.EXACT
    assert "from 33.3 to 100.0 % compliance" in collection.headline
    assert "66.7 against 0.0 %" in collection.headline
    tuned = collection_of([score for score in scores if score.spec.planner == HAIKU])
    assert (tuned.headline_kind, HAIKU in tuned.headline) == (Kind.TUNED, True)
    model = Model("vendor/gpt-5-mini", "gpt-5-mini")
    asked = [
        msgspec.structs.replace(as_if(one, planner=model.requested), planner_kind="model", model=model)
        for one in scores
        if one.spec.planner == "compliant"
    ]
    measured = collection_of([*scores, *asked])
    assert measured.headline_kind is Kind.MEASURED
    rows = measured.exhibits[0].rows
    assert [(row.kind, row.cells[0].text) for row in rows[:2]] == [
        (Kind.MEASURED, "vendor/gpt-5-mini"),
        (Kind.PAPER, "gpt-5-mini"),
    ]
    nothing = collection_of([score for score in scores if score.spec.stream == "rules"])
    assert nothing.headline_kind is None
    assert "no ladder to read" in nothing.headline


def test_runs_that_consume_otherwise_stand_apart_and_are_not_held_against_the_paper(scores):
    applied = [as_if(score, consume="apply") for score in scores]
    ladder = collection_of([*scores, *applied]).exhibits[0]
    names = [row.cells[0].text for row in ladder.rows if row.kind is Kind.EXACT]
    planners = ("compliant", "compliant-last", "conservative")
    assert names == [f"{name}{how}" for name in planners for how in ("", ", consume apply")]
    assert sum(row.kind is Kind.PAPER for row in ladder.rows) == 3


def test_runs_at_a_lower_level_are_not_held_against_the_paper(scores):
    lower = [as_if(score, level=1) for score in scores]
    collection = collection_of(lower)
    assert collection.exhibits[0].rows[0].cells[0].text == "compliant, level 1"
    assert "agreement" not in {exhibit.key for exhibit in collection.exhibits}


def test_a_stream_that_somebody_wrote_has_a_table_too(scores):
    [a2] = [
        one
        for one in scores
        if (one.spec.stream, one.spec.planner, one.spec.arm) == ("drifted", "compliant", "A2")
    ]
    mine = as_if(a2, stream="my-api")
    exhibits = {one.key: one for one in collection_of([mine]).exhibits}
    here = line(exhibits["other-streams"], "my-api", "A2")
    assert (here["Completed"], here["First try (%)"], here["Retries"]) == ("36/36", "75.0", "9")
    assert (here["Evictions"], here["Precision"], here["Compliance (%)"]) == ("4", "0.25", "100.0")
    assert "ladder" not in exhibits


HOSTILE = '=cmd|"<script>alert(1)</script>"&\\write18{x}$^#%_~`--> ]]>\n| x |'


@pytest.fixture(scope="module")
def hostile(scores):
    chosen = [score for score in scores if score.spec.planner == "compliant"]
    return collection_of(
        [
            *(msgspec.structs.replace(as_if(one, planner=HOSTILE), title=HOSTILE) for one in chosen),
            as_if(chosen[0], stream=f"rotations-{HOSTILE}"),
        ]
    )


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []
        self.text = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_names_that_others_wrote_do_nothing_in_the_report(hostile):
    figures, _ = figures_of(hostile.runs)
    page = report_html(hostile, figures)
    tags = Tags()
    tags.feed(page)
    assert "script" not in {tag for tag, _ in tags.found}
    assert "<script>alert(1)</script>" in "".join(tags.text)
    assert all(not name.startswith("on") for _, attributes in tags.found for name in attributes)
    for figure in figures:
        tree = ElementTree.fromstring(figure.svg)
        assert not [node for node in tree.iter() if node.tag.endswith("script")]


def test_names_that_others_wrote_are_no_formula_in_csv(hostile):
    for exhibit in hostile.exhibits:
        rows = list(csv.reader(io.StringIO(as_csv(exhibit))))
        assert {len(row) for row in rows} == {len(exhibit.columns) + 1}
        for cell in (cell for row in rows for cell in row):
            assert not cell.startswith(("=", "@"))
            assert not cell.startswith(("+", "-")) or re.fullmatch(r"[+-][\d.,]+", cell)


def test_names_that_others_wrote_are_plain_text_in_latex(hostile):
    text = as_latex(hostile.exhibits[0]).replace(r"\allowbreak{}", "")
    assert "\\write18" not in text
    assert "\\textbackslash{}write18\\{x\\}\\$\\textasciicircum{}\\#\\%\\_" in text
    body = text.partition("\\midrule")[2].partition("\\bottomrule")[0]
    widths = {len(re.findall(r"(?<!\\)&", row)) for row in body.splitlines() if row.endswith(r"\\")}
    assert widths == {len(hostile.exhibits[0].columns)}


def test_names_that_others_wrote_stay_in_their_cell_in_markdown(hostile):
    exhibit = hostile.exhibits[0]
    rows = [row for row in as_markdown(exhibit).splitlines() if row.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(exhibit.columns) + 2}
    assert "<script>" not in "\n".join(rows)


def test_latex_shares_a_heading_between_the_columns_of_a_group(exhibits):
    text = as_latex(exhibits["first-try-by-class"])
    assert r"\multicolumn{2}{c}{\shortstack[c]{Add a \\ field (\%)}}" in text
    assert r"\cmidrule(lr){3-4}" in text
    assert re.search(r"\\begin\{tabularx\}\{\\textwidth\}\{(>\{.*?\}X){2}r{8}\}\n", text)


def test_a_table_that_is_longer_than_a_page_goes_on_in_another(exhibits):
    ladder = exhibits["ladder"]
    text = as_latex(ladder._replace(rows=ladder.rows * 8))
    parts = text.count("\\begin{table*}")
    assert parts > 1
    assert text.count("The ladder, continued.") == parts - 1
    assert text.count("\\label{tab:ladder}") == 1
    body = [line for line in text.splitlines() if line.endswith(r"\\") and not line.startswith("Planner")]
    assert sum(line.startswith(("compliant & ", "conservative & ")) for line in body) == 16


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX here")
@pytest.mark.parametrize("options", ["twocolumn", "twocolumn,a4paper,11pt"])
def test_latex_tables_fit_a_page_with_two_columns(scores, hostile, options, tmp_path):
    exact = [as_if(score, arm="exact") for score in scores if score.spec.arm == "A2D"]
    model = [as_measured(score, QWEN, wording=name) for score in scores for name in ("plain", "formal")]
    exhibits = [*collection_of([*scores, *exact, *model]).exhibits, *hostile.exhibits]
    ladder = exhibits[0]
    tables = [*exhibits, ladder._replace(key="long", rows=ladder.rows * 8)]
    packages = r"\usepackage[T1]{fontenc}\usepackage{booktabs,amssymb,tabularx}"
    page = f"\\documentclass[{options}]{{article}}{packages}\\begin{{document}}%s\\end{{document}}"
    (tmp_path / "all.tex").write_text(page % "\n\\clearpage\n".join(map(as_latex, tables)), "utf-8")
    compiled = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    told = (tmp_path / "all.log").read_text("latin-1")
    assert compiled.returncode == 0, told[-2000:]
    assert re.findall(r"Overfull .hbox.*|Float too large.*|Undefined control.*", told) == []


def test_figures_are_drawn_from_the_runs_and_what_is_missing_is_said(figures, scores):
    assert [figure.key for figure in figures] == [
        "governed-by-arm",
        "funding-by-arm",
        "compliance-by-rotations",
        "payments-against-recipes",
        "organic-retries",
        "organic-stale",
    ]
    governed = ElementTree.fromstring(figures[0].svg)
    texts = [node.text for node in governed.iter() if node.tag.endswith("text")]
    named = {"compliant", HAIKU, "deterministic", "simulated, tuned to the paper", "30", "90", DASH}
    assert named <= {*texts}
    for figure in figures:
        assert figure.png.startswith(b"\x89PNG")
        assert len(figure.png) > 5000
    _, left_out = figures_of(Runs(scores[:1]))
    assert [one.title for one in left_out] == [
        "Figure: Compliance against the number of rotations",
        "Figure: Payments against recipes",
        "Figure: Retries under organic drift, release by release",
        "Figure: Stale values sent under organic drift, release by release",
        FORESEEN,
    ]


def test_the_same_runs_make_the_same_drawing(figures, reported):
    again = [(reported[0] / "exhibits" / f"{figure.key}.svg").read_bytes() for figure in figures]
    assert again == [figure.svg for figure in figures]


def test_the_colours_stay_apart_in_grey():
    def lightness(colour):
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    greys = sorted(lightness(INKS[arm]) for arm in ("a0", "a1", "a2", "a2d"))
    assert min(right - left for left, right in pairwise(greys)) > 25


def test_the_report_is_whole_in_itself(collection, figures, scores):
    page = report_html(collection, figures)
    assert "http" not in page
    assert "//" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    tags = Tags()
    tags.feed(page)
    assert not {"link", "script", "img", "iframe"} & {tag for tag, _ in tags.found}
    ids = [attributes["id"] for _, attributes in tags.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in tags.found if tag == "a"}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert sum(tag == "svg" for tag, _ in tags.found) == sum(len(figure.panels) for figure in figures)
    assert "prefers-color-scheme: dark" in page
    assert f"{len(scores)}</dd>" in page
    assert scores[0].version in page


def test_exhibits_that_cannot_be_made_are_named_in_the_report(scores):
    collection = collection_of([score for score in scores if score.spec.stream == "rules"])
    page = report_html(collection, [])
    assert "The ladder: there is no run on the drifted stream." in page


def test_intervals_are_those_of_the_textbook():
    assert rate_interval(FirstTry(10, 0)) == pytest.approx((0, 27.75), abs=0.01)
    assert rate_interval(FirstTry(10, 10)) == pytest.approx((72.25, 100), abs=0.01)
    assert rate_interval(FirstTry(263, 81)) == pytest.approx((25.53, 36.62), abs=0.01)
    assert difference_interval(FirstTry(70, 56), FirstTry(80, 48)) == pytest.approx((5.24, 33.39), abs=0.01)
    assert mean_interval([7, 8, 9]) == pytest.approx((5.516, 10.484), abs=0.001)
    assert mean_interval([7]) is None
    assert mean_interval([7, 7, 7]) is None


def test_intervals_are_given_only_where_there_is_chance(exhibits):
    assert [row.cells[0].text for row in exhibits["intervals"].rows] == [HAIKU]
    here = line(exhibits["intervals"], HAIKU)
    assert here["Compliance at A2D (%): interval"] == "82.4 to 100.0"
    assert here["Seeds: n"] == "2"


@pytest.mark.parametrize(
    ("value", "plain", "with_sign"),
    [
        (None, DASH, DASH),
        (0.04, "0.0", "0.0"),
        (-0.04, "0.0", "0.0"),
        (-1, "\u22121.0", "\u22121.0"),
        (2, "2.0", "+2.0"),
    ],
)
def test_numbers_are_written_for_people(value, plain, with_sign):
    assert number(value, Kind.EXACT).text == plain
    assert signed(value, Kind.EXACT).text == with_sign


@pytest.mark.parametrize(
    ("value", "text"), [(None, DASH), (7, "7"), (7.0, "7"), (22 / 3, "7.3"), (0, "0"), (1020.0, "1,020")]
)
def test_counts_are_whole_unless_they_are_means_that_are_not(value, text):
    assert count(value, Kind.EXACT).text == text


def test_no_mark_is_called_as_an_arm_is():
    assert {kind.value for kind in Kind}.isdisjoint({*ARMS, EXACT.name})


def test_the_command_writes_everything_and_says_where(reported):
    made, said = reported
    assert "from 33.3 to 100.0 % compliance" in said
    assert f"look at {made / 'report.html'}" in said
    written = {path.name for path in (made / "exhibits").iterdir()}
    assert {"ladder.md", "ladder.csv", "ladder.tex", "governed-by-arm.svg", "governed-by-arm.png"} <= written
    assert all(path.stat().st_size for path in (made / "exhibits").iterdir())


def test_a_report_removes_what_an_earlier_one_left_and_nothing_else(scores, tmp_path):
    write_all(collection_of(scores[:4]), tmp_path)
    assert {"ladder.md", "governed-by-arm.svg"} <= {path.name for path in (tmp_path / "exhibits").iterdir()}
    (tmp_path / "exhibits" / "notes.md").write_text("mine")
    rules = [score for score in scores if score.spec.stream == "rules"]
    _, *written = write_all(collection_of(rules), tmp_path)
    left = {path.name for path in (tmp_path / "exhibits").iterdir()}
    assert left == {path.name for path in written} | {"notes.md"}
    assert "ladder.md" not in left
    assert "governed-by-arm.svg" not in left


def test_what_cannot_be_reported_is_one_sentence(folder, scores, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for arguments, told in (
        ([tmp_path / "nowhere"], "there is no folder"),
        ([tmp_path / "file"], "there is no folder"),
        ([tmp_path / "empty"], "there is no whole run in"),
        ([folder, "--out", tmp_path / "file"], "cannot write"),
    ):
        assert main(["lab", "report", *map(str, arguments)]) == 1
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1


def test_a_file_that_cannot_be_written_is_told(collection, tmp_path):
    (tmp_path / "exhibits").write_text("in the way")
    with pytest.raises(ExhibitsError, match="cannot write"):
        write_all(collection, tmp_path)
