"""Whose word counts: signed states, and everything somebody without the key, or with it, might try."""

import base64
import shutil
import subprocess
import sys

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shelflife.client.reading import read_statement
from shelflife.client.steps import Distrust
from shelflife.client.trust import Attestation, Trust, attestation
from shelflife.contract import Rule
from shelflife.contract.compact import Moved
from shelflife.contract.signed import statement_input
from shelflife.contract.versions import Versions
from shelflife.integrations.ed25519 import KeyFileError, SigningKey, trust
from shelflife.server import Provider, Signing
from tests.client.agents import Clock

ORIGIN = "https://api.example:443"
KEYS = [f"k{n}" for n in range(5)]
NOTHING = Versions({}, None)


class Server:
    """A provider that signs, on a state file."""

    def __init__(self, path, key, clock):
        self.path, self.key, self.clock = path, key, clock
        self.provider = Provider(
            {"codes": {key: {"n": 0} for key in KEYS}},
            state_file=path,
            signing=Signing(signer=key, clock=clock),
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.provider.close()

    def change(self, keys, n):
        self.provider.registry.reload_table("codes", set={key: {"n": n} for key in keys})

    @property
    def versions(self):
        state = self.provider.registry.state
        return Versions(state.table_versions, state.rules.version)

    def answer(self, since=None):
        return msgspec.json.encode(
            self.provider.lineage.answer(since, self.provider.face(self.provider.state, {}))
        )


class Client:
    """What a memory does with attestations, and nothing else."""

    def __init__(self, clock, *pins):
        self.clock, self.trust = clock, trust({ORIGIN: pins})
        self.held, self.versions = None, NOTHING

    def take(self, body) -> Attestation:
        found = attestation(body, self.held, self.versions, self.trust, ORIGIN, self.clock.now)
        self.held, self.versions = found.vouched, found.versions
        return found

    def follow(self, server):
        return self.take(server.answer(self.held and self.held.sequence))


@pytest.fixture
def key():
    return SigningKey.new()


@pytest.fixture
def server(tmp_path, key, clock):
    with Server(tmp_path / "state.db", key, clock) as server:
        yield server


@pytest.fixture
def client(clock, key):
    return Client(clock, key.key)


@pytest.mark.spec("15.9", "15.11")
@given(
    steps=st.lists(st.tuples(st.sets(st.sampled_from(KEYS), min_size=1), st.booleans()), max_size=12),
    flipped=st.integers(0, 10**9),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_honest_server_is_believed_and_told_is_all_that_changed(tmp_path_factory, steps, flipped):
    clock, key = Clock(), SigningKey.new()
    with Server(tmp_path_factory.mktemp("signed") / "state.db", key, clock) as server:
        client = Client(clock, key.key)
        client.follow(server)
        touched = set()
        for number, (keys, is_asked) in enumerate(steps, start=1):
            clock.now += 60
            server.change(keys, number)
            touched |= keys
            if is_asked:
                before = client.held
                answer = server.answer(before.sequence)
                with pytest.raises(Distrust):
                    client.take(_flipped(answer, flipped))
                assert client.held == before
                found = client.take(answer)
                assert client.versions == server.versions
                assert set(found.changes["codes"].changed) == touched
                touched = set()


def _flipped(answer, seed):
    """The answer with one character of a statement or of a signature changed for another, or with another key."""
    tree = msgspec.json.decode(answer)
    one = tree["statements"][seed % len(tree["statements"])]
    member = ("statement", "signature", "key")[seed // 7 % 3]
    if member == "key":
        one["key"] = SigningKey.new().key
    else:
        place = seed % len(one[member].rstrip("="))
        place -= member == "signature" and place == 85  # of the last character not all bits count
        letter = "A" if one[member][place] != "A" else "B"
        one[member] = one[member][:place] + letter + one[member][place + 1 :]
    return msgspec.json.encode(tree)


def test_several_steps_at_once_are_told_together(server, client):
    client.follow(server)
    other = Client(server.clock, server.key.key)
    other.follow(server)
    for number, name in enumerate(("k0", "k1", "k0"), start=1):
        server.change([name], number)
        other.follow(server)
    found = client.follow(server)
    assert found.vouched.sequence == 4
    assert set(found.changes["codes"].changed) == {"k0", "k1"}
    assert found.changes["codes"].version == server.versions.tables["codes"]


def test_who_is_too_far_behind_learns_the_state_but_not_what_moved(server, client):
    client.follow(server)
    for number in range(1, 70):
        server.change(["k0"], number)
        server.answer()
    found = client.follow(server)
    assert (found.changes, client.versions) == ({}, server.versions)


@pytest.mark.spec("15.9")
def test_forged(server, client):
    with pytest.raises(Distrust, match="not pinned"):
        Client(server.clock, SigningKey.new().key).follow(server)
    tree = msgspec.json.decode(server.answer())
    tree["statements"][0]["statement"] = tree["statements"][0]["statement"].replace("codes", "modes")
    with pytest.raises(Distrust, match="forged"):
        client.take(msgspec.json.encode(tree))
    for malformed in (b"", b"{}", b'{"statements":[]}', b"[" * 9999, b'{"statements":[{"statement":"{}"}]}'):
        with pytest.raises(Distrust):
            client.take(malformed)
    assert client.held is None


@pytest.mark.spec("15.9")
def test_replayed(server, client):
    first = server.answer()
    client.take(first)
    server.change(["k0"], 1)
    client.follow(server)
    with pytest.raises(Distrust, match="replayed, or the server was rolled back"):
        client.take(first)
    server.clock.now += 13 * 3600
    renewed = server.answer()
    assert client.take(renewed).changes == {}


@pytest.mark.spec("15.9")
def test_frozen(server, client):
    answer = server.answer()
    client.take(answer)
    server.clock.now += 24 * 3600 - 1
    client.take(answer)
    server.clock.now += 1
    with pytest.raises(Distrust, match="expired"):
        client.take(answer)
    client.follow(server)


def test_of_the_future(server, client):
    server.clock.now += 301
    answer = server.answer()
    server.clock.now -= 301
    with pytest.raises(Distrust, match="future"):
        client.take(answer)


@pytest.mark.spec("15.9")
def test_rolled_back_and_forked(server, client, tmp_path):
    """A server that is set up again from an old copy of its state file, and goes on differently."""
    client.follow(server)
    server.change(["k0"], 1)
    client.follow(server)
    server.provider.close()
    shutil.copy(server.path, tmp_path / "old.db")
    with (
        Server(server.path, server.key, server.clock) as on,
        Server(tmp_path / "old.db", server.key, server.clock) as old,
    ):
        on.change(["k1"], 2)
        client.follow(on)
        with pytest.raises(Distrust, match="rolled back"):
            client.follow(old)
        old.change(["k2"], 2)
        with pytest.raises(Distrust, match="two different states as number 3"):
            client.follow(old)
        old.answer()
        old.change(["k3"], 3)
        with pytest.raises(Distrust, match="state 4 does not go on"):
            client.take(old.answer())
        with pytest.raises(Distrust, match="state 4 does not go on"):
            client.follow(old)
        on.change(["k4"], 4)
        assert client.follow(on).vouched.sequence == 4


@pytest.mark.spec("15.9")
def test_another_lineage(server, client, tmp_path):
    client.follow(server)
    with (
        Server(tmp_path / "new.db", server.key, server.clock) as new,
        pytest.raises(Distrust, match="another lineage"),
    ):
        client.follow(new)


@pytest.mark.spec("15.8", "15.9")
def test_a_key_names_the_one_that_takes_its_place(tmp_path, clock):
    keys = [SigningKey.new() for _ in range(3)]
    path = tmp_path / "state.db"
    client = Client(clock, keys[0].key)
    with Server(path, keys[0], clock) as server:
        client.follow(server)
        by_the_old = server.answer()
    with Server(path, keys[1], clock) as server, pytest.raises(Distrust, match="not pinned"):
        client.follow(server)
    chain = [keys[0].endorse(keys[1].key), keys[1].endorse(keys[2].key)]
    endorsed = SigningKey(keys[2]._private, chain)
    with Server(path, endorsed, clock) as server:
        client.follow(server)
        assert set(client.held.retired_keys) == {keys[0].key, keys[1].key}
        with pytest.raises(Distrust, match="has been replaced"):
            client.take(by_the_old)
    # what is known of keys is kept, also when the endorsements are no longer sent
    with Server(path, SigningKey(keys[2]._private), clock) as server:
        client.follow(server)
    # somebody with a stolen old key names a key of his own
    thief = SigningKey.new()
    stolen = SigningKey(thief._private, [keys[0].endorse(thief.key), keys[1].endorse(thief.key)])
    with Server(path, stolen, clock) as server, pytest.raises(Distrust, match="not pinned"):
        client.follow(server)
    # once the pin is another one, whoever was named by the old one counts no longer
    client.trust = trust({ORIGIN: [SigningKey.new().key]})
    with Server(path, keys[2], clock) as server, pytest.raises(Distrust, match="not pinned"):
        client.follow(server)


def test_endorsements_count_in_any_order_and_bring_back_nobody(tmp_path, clock):
    keys = [SigningKey.new() for _ in range(3)]
    path = tmp_path / "state.db"
    client = Client(clock, keys[0].key)
    backwards = [keys[1].endorse(keys[2].key), keys[0].endorse(keys[1].key)]
    with Server(path, SigningKey(keys[2]._private, backwards), clock) as server:
        client.follow(server)
        answer = msgspec.json.decode(server.answer())
    answer["endorsements"].append(msgspec.to_builtins(keys[2].endorse(keys[0].key)))
    client.take(msgspec.json.encode(answer))  # a key that was retired stays so, and takes nobody's place
    assert set(client.held.retired_keys) == {keys[0].key, keys[1].key}
    with Server(path, keys[0], clock) as server, pytest.raises(Distrust, match="has been replaced"):
        client.follow(server)


def signed(key, text):
    signature = base64.b64encode(key.sign(statement_input(text))).decode()
    return {"statement": text, "key": key.key, "signature": signature}


def resigned(server, answer, number, **changes):
    """An answer in which the holder of the key has written one statement otherwise."""
    tree = msgspec.json.decode(answer)
    statement = read_statement(tree["statements"][number]["statement"])
    tree["statements"][number] = signed(server.key, msgspec.structs.replace(statement, **changes).text)
    return msgspec.json.encode(tree)


@pytest.fixture
def behind(server, client):
    """A client that is three states behind, and what the server tells it."""
    client.follow(server)
    other = Client(server.clock, server.key.key)
    tie = Rule(from_table="codes", to_table="codes", relation="needs")
    for change in (
        lambda: server.change(["k0"], 1),
        lambda: server.provider.registry.reload_rules([tie]),
        lambda: server.change(["k1"], 2),
    ):
        change()
        other.follow(server)
    return server.answer(1)


def test_all_steps_are_told_also_those_of_the_rules(client, behind):
    changes = client.take(behind).changes
    assert set(changes["codes"].changed) == {"k0", "k1"}
    assert [rule.id for rule in changes[":rules"].added] == ["codes:needs"]


def test_a_step_of_another_lineage_is_none(server, client, behind):
    with pytest.raises(Distrust, match="state 3 does not go on"):
        client.take(resigned(server, behind, 1, lineage="f" * 32))


def test_moves_that_do_not_lead_to_the_state_are_not_believed(server, client, behind):
    """By which a fix would be kept that rests on what was left out."""
    first = read_statement(msgspec.json.decode(behind)["statements"][0]["statement"])
    lying = Moved(tables={}, rules=first.moved.rules)
    assert client.take(resigned(server, behind, 0, moved=lying)).changes == {}


def test_moves_count_from_the_state_that_was_attested(server, client, behind):
    client.versions = Versions({"codes": "another"}, client.versions.rules)
    assert client.take(behind).changes == {}


def test_a_step_that_cannot_tell_makes_all_unknown(server, client, behind):
    assert client.take(resigned(server, behind, 1, moved=None)).changes == {}


def test_a_word_that_holds_longer_stays_so(server, client, clock):
    client.follow(server)
    until = client.held.expires_at
    clock.now += 13 * 3600
    first = server.answer()
    client.take(first)
    assert client.held.expires_at > until
    shorter = resigned(server, first, 0, expires_at=int(clock.now) + 60)
    longest = client.held.expires_at
    client.take(shorter)
    assert client.held.expires_at == longest


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("key", "ed25519:AAAA"),
        ("key", "rsa:" + "A" * 43 + "="),
        ("signature", "AAAA"),
        ("signature", "!" * 86 + "=="),
    ],
)
def test_keys_and_signatures_are_spelled_as_such(server, client, member, value):
    tree = msgspec.json.decode(server.answer())
    tree["statements"][0][member] = value
    with pytest.raises(Distrust, match="a key or a signature that is none"):
        client.take(msgspec.json.encode(tree))


def test_pins_are_keys():
    for wrong in ("ed25519:" + "A" * 43 + "=", [], ["ed25519:short"], ["A" * 44]):
        with pytest.raises(ValueError, match="a pin is a list of keys"):
            trust({ORIGIN: wrong})
    key, other = SigningKey.new().key, SigningKey.new().key
    assert trust({"https://API.example/": [key]}).pins_of(ORIGIN) == {key}
    assert trust({"https://API.example/": [key], ORIGIN: [other]}).pins_of(ORIGIN) == {key, other}
    assert Trust({}, lambda *_: True).pins_of(ORIGIN) == frozenset()
    for wrong in (
        "",
        "api.example",
        "127.0.0.1:8123",
        "https://",
        "https://api.example:port",
        "ftp://api.example",
    ):
        with pytest.raises(ValueError, match="is not the URL of a server: write it as"):
            trust({wrong: [key]})


def test_key_files(tmp_path):
    path = tmp_path / "signing.pem"
    key = SigningKey.new()
    key.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SigningKey.from_file(path).key == key.key
    with pytest.raises(KeyFileError, match=r"cannot write .*File exists"):
        SigningKey.new().write(path)
    with pytest.raises(KeyFileError, match=r"cannot read .*No such file"):
        SigningKey.from_file(tmp_path / "none.pem")
    (tmp_path / "text.pem").write_text("no key")
    with pytest.raises(KeyFileError, match="no private key"):
        SigningKey.from_file(tmp_path / "text.pem")
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "other.pem").write_bytes(other)
    with pytest.raises(KeyFileError, match="another kind"):
        SigningKey.from_file(tmp_path / "other.pem")
    locked = key._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    with pytest.raises(KeyFileError, match="is encrypted"):
        SigningKey.from_file(tmp_path / "locked.pem")


def test_half_a_key_is_not_left_behind(tmp_path):
    """A disk with no room, as a limit on the size of files makes one."""
    path = tmp_path / "signing.pem"
    program = (
        "import resource, signal, sys; from shelflife.integrations.ed25519 import SigningKey, KeyFileError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: SigningKey.new().write(sys.argv[1])\n"
        "except KeyFileError as error: print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"cannot write {path}: File too large\n"
    assert not path.exists()
