"""The records of real models that are kept: whole, said to be of the model that they are of, and what the documents show."""

import gzip
import re

import pytest

from shelflife.lab.grid import last_run_in, scores_in
from shelflife.lab.records import Attempted
from shelflife.lab.scores import is_whole
from tests.measured_tables import DOCUMENTS, MEASURED, with_their_tables

README = (MEASURED / "README.md").read_text("utf-8")
FILES = sorted(MEASURED.glob("*.jsonl.gz"))


def test_there_are_some_and_nothing_else():
    assert len(FILES) > 0
    assert {path.name for path in MEASURED.iterdir()} == {
        "README.md",
        "organic",
        *(path.name for path in FILES),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_is_one_whole_run_of_a_model_that_is_described(path):
    records = last_run_in(path)
    assert is_whole(records)
    served = records[0].model.served
    name, _, digest = served.partition("@")
    assert f"`{name}`" in README
    assert re.search(rf"`{digest}[0-9a-f]{{48}}`", README)
    assert {one.served for one in records if isinstance(one, Attempted)} == {served}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_tells_nothing_of_when_and_where_it_was_compressed(path):
    raw = path.read_bytes()
    assert raw[3:8] == bytes(5), "neither a name nor a time: gzip -n"
    assert not re.search(rb"/(home|root|tmp|work)/", gzip.decompress(raw))


def test_no_run_is_there_twice():
    specs = [score.spec for score in scores_in(MEASURED)]
    assert len(specs) == len(set(specs)) == len(FILES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_documents_show_what_the_records_give(document):
    text = document.read_text("utf-8")
    assert with_their_tables(text) == text, "run `make measured`"
