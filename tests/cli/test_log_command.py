"""`shelflife log`: a copy that is put back becomes another log."""

import shutil
from contextlib import closing

import pytest

from shelflife.cli import main
from shelflife.contract.positions import Named
from shelflife.server import LogError, Provider, Registry, SqliteLog
from shelflife.server.faces import face_of
from shelflife.server.logs import log_at
from shelflife.server.wire import Level


def reloaded(path, *codes):
    """What a server shows after these reloads, and whether it kept the rows that it had."""
    with closing(SqliteLog(path)) as log:
        registry = Registry({"codes": {"growth": {"code": "SPRING"}}}, log=log)
        for code in codes:
            registry.reload_table("codes", set={"growth": {"code": code}})
        return face_of(registry.state, Level.FINGERPRINT), registry.rows("codes")


@pytest.mark.parametrize("codes", [(), ("SUMMER",), ("WINTER", "AUTUMN")])
def test_nothing_said_before_a_copy_was_put_back_counts_after_it_was_renewed(tmp_path, codes, capsys):
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    _, kept = reloaded(path, "COPIED")
    shutil.copy(path, copy)
    before, _ = reloaded(path, *codes)
    shutil.copy(copy, path)
    assert main(["log", "renew", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} is another log now.\n"
    after, rows = reloaded(path)
    assert (rows, after.log_id == before.log_id) == (kept, False)
    for again in (after, reloaded(path, *codes)[0]):
        assert again.position.check != before.position.check
        told = again.account(Named(before.position))
        assert told.unknown in ("foreign", "ahead", "old")


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_a_running_server_goes_on_with_the_renewed_log(tmp_path, kind, request, capsys):
    path = tmp_path / "state.db" if kind == "file" else request.getfixturevalue("postgres_url")
    with closing(log_at(path)) as log:
        registry = Registry({"codes": {"growth": {"code": "SPRING"}}}, log=log)
        before = registry.state
        assert main(["log", "renew", str(path)]) == 0
        assert capsys.readouterr().out == f"{log.name} is another log now.\n"
        registry.reload_table("codes", set={"growth": {"code": "SUMMER"}})
        assert registry.state.log_id != before.log_id
        assert registry.rows("codes") == {"growth": {"code": "SUMMER"}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "there is no file {path}"),
        (b"no log" * 1000, "the log {path} cannot be opened: file is not a database"),
    ],
)
def test_what_is_no_log_is_not_renewed(tmp_path, content, told, capsys):
    path = tmp_path / "state.db"
    if content is not None:
        path.write_bytes(content)
    assert main(["log", "renew", str(path)]) == 1
    assert capsys.readouterr().err == f"shelflife: {told.format(path=path)}\n"
    assert (path.read_bytes() if path.exists() else None) == content


def test_a_database_that_is_not_there_is_told_without_its_password(capsys):
    assert main(["log", "renew", "postgres://ada:secret@127.0.0.1:1/shop"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(
        "shelflife: the log postgresql://127.0.0.1:1/shop?schema=shelflife cannot be opened"
    )
    assert ("secret" in told, told.count("\n")) == (False, 1)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://shop:s3cr3t@127.0.0.1:1/shop",
        "mysql://shop:s3cr3t@127.0.0.1:1/shop",
        "PostgreSQL://shop:s3cr3t@127.0.0.1:1/shop",
        " postgresql://shop:s3cr3t@127.0.0.1:1/shop",
        "redis://shop:s3cr3t@127.0.0.1:1/0",
        "postgresql:/shop:s3cr3t@127.0.0.1:1/shop",
        "postgresql://shop:24680#s3cr3t@127.0.0.1:1/shop",
    ],
)
def test_no_message_repeats_the_password_of_an_address_that_no_log_can_be_at(address, capsys):
    with pytest.raises(LogError) as refused:
        Provider({}, log=address)
    commands = (["log", "renew"], ["serve", "acme", "--port", "0", "--state"], ["forecast", "--log"])
    for command in commands:
        assert main([*command, address]) != 0
    told = f"{refused.value} {capsys.readouterr().err}"
    assert told.count("a log can be") + told.count("cannot be") >= 1 + len(commands)
    assert "s3cr3t" not in told
    assert "24680" not in told


def test_an_address_may_name_the_file_of_a_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address in ("sqlite:///state.db", f"sqlite:///{tmp_path}/state.db", "state.db"):
        with closing(log_at(address)) as log:
            log.renew() if log.declared() else Registry({"codes": {}}, log=log)
    assert [path.name for path in tmp_path.glob("*.db")] == ["state.db"]
