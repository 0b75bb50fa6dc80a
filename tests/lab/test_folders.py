"""Folders of records as people have them: with runs that were played again, cut off, copied, or put beside other things."""

import gzip

import msgspec
import pytest

from shelflife.cli import main
from shelflife.lab import Proposal, Usage
from shelflife.lab.answers import Answers
from shelflife.lab.grid import scores_in
from shelflife.lab.records import EpisodeEnded, RunEnded, RunStarted
from shelflife.lab.scenarios import ScenarioError, parse
from shelflife.lab.whole_files import write_whole
from tests.lab.played_runs import recorded


@pytest.fixture(scope="module")
def records():
    return recorded("drifted", "A2D")


def text_of(records):
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def replaced(records, kind, **members):
    return [msgspec.structs.replace(one, **members) if isinstance(one, kind) else one for one in records]


def test_of_a_run_that_was_played_twice_the_last_one_counts(tmp_path, records):
    later = replaced(records, RunStarted, started_at="2999-01-01T00:00:00+00:00", title="edited")
    (tmp_path / "a.jsonl").write_bytes(text_of(later))
    (tmp_path / "b.jsonl").write_bytes(text_of(records))
    (tmp_path / "copy.jsonl").write_bytes(text_of(records))
    [score] = scores_in(tmp_path)
    assert score.title == "edited"


def test_a_run_that_was_cut_off_beside_the_same_one_compressed_and_whole_is_there(tmp_path, records):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text_of(records), mtime=0))
    for cut in (b"", text_of(records[:-20])):
        (tmp_path / "a.jsonl").write_bytes(cut)
        assert [score.spec.arm for score in scores_in(tmp_path)] == ["A2D"]


def test_answers_that_are_kept_beside_records_are_no_records(tmp_path, records):
    (tmp_path / "a.jsonl").write_bytes(text_of(records))
    answers = Answers(tmp_path / "answers.jsonl")
    answers.add("k", Proposal("{}", Usage(prompt=1, completion=1, source="estimated")))
    assert len(scores_in(tmp_path)) == 1


def test_what_another_has_kept_meanwhile_is_not_asked_for_again(tmp_path):
    mine, other = Answers(tmp_path / "a.jsonl"), Answers(tmp_path / "a.jsonl")
    for number in range(3):
        answer = Proposal(str(number), Usage(prompt=1, completion=1, source="estimated"))
        other.add(f"k{number}", answer)
        mine.add(f"m{number}", answer)
        assert mine.get(f"k{number}") == other.get(f"m{number}") == answer


@pytest.mark.parametrize(
    ("kind", "members"), [(EpisodeEnded, {"episode": 999}), (RunStarted, {"families": []})]
)
def test_a_record_that_was_edited_is_one_sentence(kind, members, tmp_path, records, capsys):
    text = text_of(replaced(records, kind, **members))
    (tmp_path / "a.jsonl").write_bytes(text)
    assert main(["lab", "report", str(tmp_path), "--out", str(tmp_path / "report")]) != 0
    told = capsys.readouterr().err.strip()
    assert told
    assert "\n" not in told


def test_a_record_that_is_nested_without_end_is_one_sentence(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes(b'{"type":"attempt","request":' + b"[" * 100_000 + b"\n")
    assert main(["lab", "report", str(tmp_path), "--out", str(tmp_path / "report")]) != 0
    assert capsys.readouterr().err.count("\n") == 1


def test_the_time_of_a_server_is_that_of_its_requests(records):
    [ended] = [one for one in records if isinstance(one, RunEnded)]
    assert 0 < ended.server_s < ended.whole_s
    assert ended.http_s > 0


@pytest.mark.parametrize(
    "text", ["n = " + "9" * 5000, "[organic]\nreleases = 'zones'\nrows = 1\nrequests = 999999999"]
)
def test_numbers_without_measure_are_told(text):
    with pytest.raises(ScenarioError):
        parse(f'name = "mine"\ntitle = "Mine"\n{text}\n', "mine.toml")


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    path = tmp_path / "report.html"
    write_whole(path, b"before")
    with pytest.raises(TypeError):
        write_whole(path, "no bytes")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert path.read_bytes() == b"before"
