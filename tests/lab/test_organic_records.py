"""The records of organic runs that are kept: whole, what the oracle says, and what the document shows."""

import gzip
import re

import msgspec
import pytest

from shelflife.lab.grid import last_run_in
from shelflife.lab.organic.drawing import Organic
from shelflife.lab.organic.releases import file_of
from shelflife.lab.scenarios import parse
from shelflife.lab.scores import is_whole, score_of
from tests.lab.organic_oracle import Predicted, predicted
from tests.measured_tables import MEASURED, ROOT

FOLDER = MEASURED / "organic"
FILES = sorted(FOLDER.glob("*.jsonl.gz"))
OF_ZONES = [path for path in FILES if path.name.startswith("organic-zones")]
FORGETS = {"A0": "everything", "A1": "nothing", "A2": "table", "A2D": "row", "exact": "cell"}
DOCUMENT = (ROOT / "docs" / "explanation" / "organic.md").read_text("utf-8")


def test_there_are_some_and_nothing_else():
    assert len(FILES) == 39
    assert {path.name for path in FOLDER.iterdir()} == {"README.md", *(path.name for path in FILES)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_is_one_whole_run_that_tells_nothing_of_where_it_was_played(path):
    raw = path.read_bytes()
    assert len(raw) < 500_000
    assert raw[3:8] == bytes(5), "neither a name nor a time: gzip -n"
    assert not re.search(rb"/(home|root|tmp|work)/", gzip.decompress(raw))
    records = last_run_in(path)
    assert is_whole(records)
    assert (records[0].planner_kind, records[0].history in ("banks", "zones")) == ("simulated", True)


@pytest.mark.parametrize("path", OF_ZONES, ids=lambda path: path.name)
def test_those_on_zones_come_to_what_the_oracle_says(path):
    """What an agent learns before it is refused, the oracle does not know of: it asks nothing."""
    records = last_run_in(path)
    start, score = records[0], score_of(records)
    if score.spec.conduct.fresh != "none":
        assert score.stale_injections == 0
        return
    window = {"first": "2018.3", "last": "2019.2"} if len(start.families) == 40 else {}
    expected = predicted(
        "zones",
        file_of("zones"),
        start.families,
        5 if window else 20,
        forgets=FORGETS[score.spec.arm],
        takes_last=score.spec.planner == "compliant-last",
        is_frozen=start.spec.stream.endswith("undrifted"),
        **window,
    )
    got = Predicted(score.retries, score.stale_injections, score.stale_executions, score.evictions)
    assert got == expected


def test_all_that_an_organic_stream_can_say_is_documented():
    keys = {field.encode_name for field in msgspec.structs.fields(Organic)}
    rows = re.findall(r"(?m)^\| (`.*?) \|", DOCUMENT)
    assert keys <= {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_the_stream_of_the_document_can_be_read():
    [text] = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
    scenario = parse(text, "mine.toml")
    assert len(scenario.order) == 5 * 24
