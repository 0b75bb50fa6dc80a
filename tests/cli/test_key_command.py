"""`shelflife key`, and a server that signs: from drawing a key to replacing it."""

import pytest

from shelflife.cli import main
from shelflife.client.events import Distrusted
from shelflife.integrations.ed25519 import SigningKey, trust
from tests.acme_world import GOVERNED
from tests.cli.commands import Serving, run_here
from tests.client.agents import Agent


@pytest.fixture
def drawn(tmp_path, capsys):
    """Two key files, and the public keys."""
    files = [tmp_path / "old.pem", tmp_path / "new.pem"]
    for file in files:
        assert main(["key", "new", str(file)]) == 0
    return files, capsys.readouterr().out.split()


def test_from_a_first_key_to_one_that_takes_its_place(drawn, tmp_path, capsys):
    (old, new), (old_key, new_key) = drawn
    main(["key", "show", str(new)])
    assert capsys.readouterr().out.strip() == new_key
    main(["key", "endorse", str(old), str(new)])
    endorsement = tmp_path / "endorsement.json"
    endorsement.write_text(capsys.readouterr().out)
    state = ["acme", "--state", str(tmp_path / "state.db")]
    with Serving(*state, "--signing-key", str(old)) as server:
        assert old_key in server.greeting
        origin = str(server.client.base_url).rstrip("/")
        with Agent(origin, trust=trust({origin: [old_key]}), names_positions=True) as agent:
            agent.call(GOVERNED)
            assert agent.recall(GOVERNED)
            attested = agent.memory.store.known(origin).knowledge.vouched
    assert (attested.key, attested.keys) == (old_key, {})
    signing = ["--signing-key", str(new), "--endorsement", str(endorsement)]
    with Serving(*state, *signing) as server:
        origin = str(server.client.base_url).rstrip("/")
        with Agent(origin, trust=trust({origin: [old_key]}), names_positions=True) as agent:
            agent.call(GOVERNED)
            assert agent.recall(GOVERNED)
            now_attested = agent.memory.store.known(origin).knowledge.vouched
            assert agent.of(Distrusted) == []
    assert (now_attested.log, now_attested.at) == (attested.log, attested.at)
    assert (now_attested.keys, now_attested.retired_keys) == ({new_key: old_key}, (old_key,))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["key", "show", "none.pem"], "cannot read none.pem: No such file or directory"),
        (
            ["key", "new", "no/such/folder/key.pem"],
            "cannot write no/such/folder/key.pem: No such file or directory",
        ),
        (["key", "endorse", "none.pem", "none.pem"], "cannot read none.pem: No such file or directory"),
        (
            ["serve", "acme", "--endorsement", "e.json"],
            "an endorsement needs the key that it is of: give --signing-key too",
        ),
        (
            ["serve", "acme", "--state", "state.db", "--signing-key", "none.pem"],
            "cannot read none.pem: No such file or directory",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(arguments, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    assert capsys.readouterr().err == f"shelflife: {told}\n"


def test_a_server_that_signs_needs_a_state_file_and_endorsements_that_are_some(drawn, tmp_path):
    (old, _), _ = drawn
    told = run_here("serve", "acme", "--port", "0", "--signing-key", str(old))
    assert (told.returncode, told.stderr) == (
        1,
        "shelflife: --signing-key needs --state: signed states are numbered across restarts\n",
    )
    state = ["--state", str(tmp_path / "state.db")]
    told = run_here("serve", "acme", *state, "--signing-key", str(old), "--endorsement", str(old))
    assert told.returncode == 1
    assert f"{old} holds no endorsement" in told.stderr
    told = run_here("serve", "acme", *state, "--level", "0", "--signing-key", str(old))
    assert told.stderr == "shelflife: at Level 0 there are no states to sign\n"
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    told = run_here("serve", "acme", *state, "--signing-key", str(old), "--endorsement", str(binary))
    assert f"{binary} holds no endorsement" in told.stderr
    assert main(["key", "new", str(old)]) == 1


def test_endorsements_that_lead_nowhere_are_refused(drawn, tmp_path, capsys):
    (old, new), (old_key, new_key) = drawn
    main(["key", "endorse", str(old), str(new)])
    endorsement = tmp_path / "endorsement.json"
    endorsement.write_text(capsys.readouterr().out)
    state = ["--state", str(tmp_path / "state.db"), "--port", "0"]
    told = run_here("serve", "acme", *state, "--signing-key", str(old), "--endorsement", str(endorsement))
    assert (
        told.stderr == f"shelflife: an endorsement says that {new_key} takes the place of the signing key\n"
    )
    forged = tmp_path / "forged.json"
    forged.write_text(endorsement.read_text().replace(old_key, SigningKey.new().key))
    told = run_here("serve", "acme", *state, "--signing-key", str(new), "--endorsement", str(forged))
    assert "is not signed by" in told.stderr
    assert main(["key", "endorse", str(old), str(old)]) == 1
    assert capsys.readouterr().err == "shelflife: a key cannot take its own place\n"
