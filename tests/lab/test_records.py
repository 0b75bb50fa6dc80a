"""The files of records: whole lines only, one writer at a time."""

import pytest

from shelflife.cli import main
from shelflife.lab.grid import scores_in
from shelflife.lab.records import FORMAT, EpisodeEnded, RecordFile, RecordsError, RunEnded, read_records
from shelflife.lab.scores import is_whole
from tests.lab.played_runs import recorded


def ended(episode):
    return EpisodeEnded(episode=episode, in_class="free", attempts=1, is_completed=True)


def test_a_file_that_was_cut_anywhere_in_its_last_record_can_be_added_to(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordFile(path) as record:
        record(ended(0))
        whole_length = path.stat().st_size
        record(ended(1))
    written = path.read_bytes()
    for length in range(len(written)):
        path.write_bytes(written[:length])
        with RecordFile(path) as record:
            record(ended(2))
        kept = [ended(0)] if length >= whole_length else []
        assert read_records(path) == [*kept, ended(2)]
    path.write_bytes(written)
    with RecordFile(path) as record:
        record(ended(2))
    assert read_records(path) == [ended(0), ended(1), ended(2)]


def test_a_file_has_one_writer_at_a_time(tmp_path):
    path = tmp_path / "run.jsonl"
    with RecordFile(path) as record:
        record(ended(0))
        with pytest.raises(RecordsError, match=r"another process is writing .*run\.jsonl"):
            RecordFile(path)
    with RecordFile(path) as record:
        record(ended(1))
    assert read_records(path) == [ended(0), ended(1)]


@pytest.fixture(scope="module")
def records():
    return recorded("undrifted", "A0")


def test_a_run_is_whole_when_every_episode_has_ended_once(records):
    assert is_whole(records)
    last = next(record for record in reversed(records) if isinstance(record, EpisodeEnded))
    assert not is_whole([record for record in records if record is not last])
    assert not is_whole([*records[:-1], last, records[-1]])
    assert not is_whole(records[:-1])
    assert not is_whole(records[1:])
    assert not is_whole([])


@pytest.mark.parametrize("told", ['"format":1,', ""])
def test_records_of_another_format_are_refused_in_one_sentence(told, tmp_path, records, capsys):
    path = tmp_path / "run.jsonl"
    with RecordFile(path) as record:
        for one in records:
            record(one)
    path.write_text(path.read_text().replace(f'"format":{FORMAT},', told))
    sentence = (
        f"{path} is not in format {FORMAT} of records, the only one that this version of shelflife reads:"
        " move it away and play the run again"
    )
    with pytest.raises(RecordsError) as refusal:
        read_records(path)
    assert str(refusal.value) == sentence
    assert main(["lab", "report", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"shelflife: {sentence}\n"


def test_two_runs_that_were_written_into_each_other_are_no_run(tmp_path, records):
    with RecordFile(tmp_path / "run.jsonl") as record:
        for one in records:
            record(one)
            if not isinstance(one, RunEnded):
                record(one)
    assert scores_in(tmp_path) == []
