"""Where a memory lives: said in one word."""

import pytest

from shelflife.client import InProcessStore, Memory, SqliteStore, StoreError
from shelflife.client.postgres import PostgresStore
from shelflife.client.valkey import ValkeyStore
from tests.client.remote import OPERATION
from tests.client.responses import rejection, said


def test_a_memory_says_where_it_lives_in_one_word(tmp_path, postgres_url, valkey_url, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = {
        "memory.db": SqliteStore,
        tmp_path / "memory.db": SqliteStore,
        "sqlite:///memory.db": SqliteStore,
        f"sqlite:///{tmp_path}/memory.db": SqliteStore,
        postgres_url: PostgresStore,
        postgres_url.replace("postgresql://", "postgres://"): PostgresStore,
        valkey_url: ValkeyStore,
        valkey_url.replace("redis://", "valkey://"): ValkeyStore,
    }
    for where, kind in kinds.items():
        memory = Memory.at(where)
        assert type(memory.store) is kind
        memory.observe(said(rejection()))
        assert len(memory.recall("http://h", OPERATION, {})) == 1
        memory.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.db", "memory.db-diary"]


@pytest.mark.parametrize(
    ("where", "settings", "why"),
    [
        ("mysql://host/db", {}, "mysql:// is not where a memory can be"),
        ("sqlite://memory.db", {}, "sqlite:// is not where a memory can be"),
        ("memory.db", {"near": True}, "a file has no namespaces, and is near already"),
        ("memory.db", {"namespace": "ours"}, "a file has no namespaces"),
        ("redis://:secret@host:port", {}, "the address of the memory cannot be read"),
        ("postgresql://me:secret@[host/db", {}, "the address of the memory cannot be read"),
        ("postgresql://me:a@secret@127.0.0.1:1/d", {}, "the address of the memory cannot be read"),
        ("redis://me:12/secret@127.0.0.1:1/0", {}, "the address of the memory cannot be read"),
        ("redis://:24680#secret@127.0.0.1:1/0", {}, "cannot be read; give one as in redis://host:6379/0"),
        ("redis://:24680?secret@127.0.0.1:1/0", {}, "cannot be read; give one as in redis://host:6379/0"),
        ("postgresql://me:24680#secret@127.0.0.1:1/d", {}, "the address of the memory cannot be read"),
        ("postgresql:/me:secret@127.0.0.1/d", {}, "this is not where a memory can be"),
        ("me:secret@mysql://127.0.0.1/d", {}, "this is not where a memory can be"),
    ],
)
def test_what_is_no_place_for_a_memory_is_told_in_one_sentence(where, settings, why):
    with pytest.raises((ValueError, StoreError), match=why) as refusal:
        Memory.at(where, **settings)
    assert "secret" not in str(refusal.value)
    assert "24680" not in str(refusal.value)


def test_a_memory_that_holds_nothing_open_can_be_closed():
    memory = Memory(InProcessStore())
    memory.close()
    memory.observe(said(rejection()))
    assert len(memory.recall("http://h", OPERATION, {})) == 1
