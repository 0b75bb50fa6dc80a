"""Records that were compressed: whatever reads records reads them, and no run is counted or played twice."""

import gzip

import pytest

from shelflife.cli import main
from shelflife.lab.grid import execute, scores_in
from shelflife.lab.records import RecordsError, read_records
from shelflife.lab.spec import RunSpec

SPEC = RunSpec("undrifted", "A1", "compliant")


@pytest.fixture
def path(tmp_path):
    """Where the records of a run are."""
    execute([SPEC], tmp_path)
    (found,) = tmp_path.glob("*.jsonl")
    return found


@pytest.fixture
def packed(path):
    """Where they are once they are compressed, and nowhere else."""
    there = path.with_name(f"{path.name}.gz")
    there.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return there


def test_they_say_what_they_said_before(path, request):
    before, scores = read_records(path), scores_in(path.parent)
    assert read_records(request.getfixturevalue("packed")) == before
    assert scores_in(path.parent) == scores != []


def test_a_run_that_is_there_twice_is_counted_once(packed):
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    assert len(scores_in(packed.parent)) == 1


def test_a_run_that_is_there_is_not_played_again(packed):
    found = []
    outcome = execute([SPEC], packed.parent, on_found=found.append)
    assert (len(found), outcome.scores) == (1, scores_in(packed.parent))
    assert [one.name for one in packed.parent.iterdir()] == [packed.name]


def test_the_commands_read_them(packed, tmp_path, capsys):
    assert main(["lab", "report", str(packed.parent), "--out", str(tmp_path / "report")]) == 0
    assert main(["lab", "show", str(packed), "--episode", "0"]) == 0
    assert "=== episode 0" in capsys.readouterr().out


def test_a_file_that_is_not_or_not_wholly_compressed_is_told_in_one_sentence(packed, capsys):
    whole = packed.read_bytes()
    sentence = f"cannot read {packed}: it is not, or not wholly, compressed with gzip"
    for damaged in (b"{}\n", whole[:-9], whole[:400] + b"\0" * 60 + whole[460:]):
        packed.write_bytes(damaged)
        with pytest.raises(RecordsError) as caught:
            read_records(packed)
        assert str(caught.value) == sentence
        assert main(["lab", "report", str(packed.parent)]) == 1
        assert capsys.readouterr().err == f"shelflife: {sentence}\n"
