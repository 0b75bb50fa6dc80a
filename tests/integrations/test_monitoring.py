"""The dashboard and the alert rules that are shipped: what they name is told by a real server, and documented."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.server.metrics import METRICS
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.scraping import order, scraped

FOLDER = files("shelflife.server").joinpath("monitoring")
REFERENCE = Path(__file__).parents[2] / "docs/reference/metrics.md"
FUNCTIONS = set(
    "sum max max_over_time min rate increase time label_values humanize by without and or".split()
)
LABELS_OF_PROMETHEUS = {"job", "instance"}


def expressions():
    board = json.loads(FOLDER.joinpath("grafana.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked = [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    rules = [rule for group in groups() for rule in group["rules"]]
    return [*shown, *asked, *(rule["expr"] for rule in rules)]


def groups():
    return yaml.safe_load(FOLDER.joinpath("alerts.yaml").read_text())["groups"]


def metrics_in(expression):
    return set(re.findall(r"\bshelflife_\w+", expression))


@pytest.fixture(scope="module")
def told():
    with calling(acme_app(acme_provider(admin_token=TOKEN))) as client:
        order(client)
        reload = {"table": "active_csm_codes", "set": ROTATED_CODES}
        assert client.post("/admin/reload-table", json=reload, headers=ADMIN).is_success
        assert client.get("/admin/metrics").status_code == 401
        scraped(client)
        return scraped(client)


@pytest.mark.parametrize("expression", expressions())
def test_a_real_server_tells_every_metric_and_label_that_is_asked_for(told, expression):
    names = metrics_in(expression)
    assert names
    assert names <= told.names
    labels = {label for name, some in told if name in names for label, _ in some} | LABELS_OF_PROMETHEUS
    matched = {
        name
        for braces in re.findall(r"\{([^}]*)\}", expression)
        for name in re.findall(r"(\w+)\s*[=!]~?", braces)
    }
    grouped = {
        name.strip()
        for some in re.findall(r"\b(?:by|without) \(([^)]*)\)", expression)
        for name in some.split(",")
    }
    assert matched | grouped <= labels


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_is_whole(expression):
    bare = re.sub(r'"[^"]*"', '""', expression)
    for opening, closing in ("()", "[]", "{}"):
        assert bare.count(opening) == bare.count(closing)
    called = set(re.findall(r"\b([a-z_]+)\s*\(", bare))
    assert called <= FUNCTIONS


@pytest.mark.parametrize("expression", [one for one in expressions() if "_total" in one])
def test_counts_that_every_worker_tells_are_taken_once_however_many_are_scraped(expression):
    labels = {one.full_name: one.labels for one in METRICS}
    counted = re.findall(r"(?:max by \(([^)]*)\) \()?(?:rate|increase)\((shelflife_\w+)", expression)
    assert len(counted) == expression.count("_total")
    for kept, name in counted:
        assert tuple(kept.split(", ")) == ("job", *labels[name])


@pytest.mark.parametrize("name", ["shelflife_log_unreached_seconds", "shelflife_log_reachable"])
def test_what_is_of_one_worker_is_looked_for_in_more_than_one_scrape(name):
    asked = [one for one in expressions() if name in one]
    assert asked
    for expression in asked:
        assert len(re.findall(rf"max_over_time\({name}(?:{{[^}}]*}})?\[", expression)) == expression.count(
            name
        )


def test_values_that_are_asked_for_are_among_those_that_are_told(told):
    known = {value for _, labels in told for _, value in labels}
    for expression in expressions():
        for value in re.findall(r'=\s*"([^"$]*)"', expression):
            assert value in known, expression


def test_every_metric_is_documented_with_its_labels_and_no_other_is():
    lines = re.findall(r"^\| `(shelflife_\w+)` \|([^|]*)\|", REFERENCE.read_text("utf-8"), re.MULTILINE)
    documented = {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in lines}
    assert documented == {one.full_name: one.labels for one in METRICS}


def test_every_metric_is_on_the_dashboard():
    shown = {name for expression in expressions() for name in metrics_in(expression)}
    assert {one.full_name for one in METRICS} - shown <= {"shelflife_log_reachable"}
    assert "shelflife_log_reachable" in FOLDER.joinpath("alerts.yaml").read_text()


def test_rules_are_what_prometheus_reads():
    for group in groups():
        assert group.keys() == {"name", "rules"}
        for rule in group["rules"]:
            assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
            assert re.fullmatch(r"[A-Za-z]+", rule["alert"])
            assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert rule["annotations"].keys() == {"summary", "description"}
    names = [rule["alert"] for group in groups() for rule in group["rules"]]
    assert len(names) == len(set(names))


def test_panels_lie_side_by_side_and_none_over_another():
    board = json.loads(FOLDER.joinpath("grafana.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        places = {
            (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
        }
        assert not places & taken
        assert at["x"] + at["w"] <= 24
        taken |= places
        assert panel["type"] == "row" or (panel["title"] and panel["description"])
