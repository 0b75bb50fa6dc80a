"""Whose word counts: signed answers, and everything somebody without the key, or with it, might try."""

import base64
import shutil

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from shelflife.client.asking import Reply
from shelflife.client.entries import Knowledge
from shelflife.client.positions import Adopted, Current, Doubted, Forward, Place
from shelflife.client.steps import Distrust
from shelflife.client.trust import KeysWord, attestation
from shelflife.contract.positions import Account, Named, Position
from shelflife.contract.signed import statement_input
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Provider, Signing
from shelflife.server.endpoints import ContractEndpoints, EndpointCall
from shelflife.server.log import MOST_ENTRIES, InProcessLog
from tests.client.agents import Clock

ORIGIN = "https://api.example:443"
KEYS = [f"k{n}" for n in range(5)]


class Server:
    """A provider that signs, on a log."""

    def __init__(self, log, key, clock, **options):
        self.key, self.clock = key, clock
        self.provider = Provider(
            {"codes": {key: {"n": 0} for key in KEYS}},
            log=log,
            signing=Signing(signer=key, clock=clock),
            **options,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.provider.close()

    def change(self, keys, n):
        self.provider.registry.reload_table("codes", set={key: {"n": n} for key in keys})

    @property
    def at(self):
        return str(self.provider.face(self.provider.state, {}).position)

    def answer(self, named):
        endpoints = ContractEndpoints(self.provider, lambda operation: None)
        query = f"from={named.base}&nonce={named.nonce}"
        answer = endpoints.answer(EndpointCall("GET", "/contract/signed", query, {}))
        assert answer.status == 200
        return answer.body


class Client:
    """What a memory does with signed answers, and nothing else."""

    def __init__(self, clock, *pins, root=ORIGIN):
        self.clock, self.trust, self.root = clock, trust({ORIGIN: pins}), root
        self.held = None

    @property
    def asking(self):
        """A question from where it stands."""
        return Place(at=self.held and self.held.at, mark="m").new_question()

    def take(self, body, named):
        found = attestation(body, named, self.held, self.trust, self.root, self.clock.now)
        self.held = found.vouched
        return found.account

    def follow(self, server, change=lambda body: body):
        named = self.asking
        return self.take(change(server.answer(named)), named)


@pytest.fixture
def key():
    return SigningKey.new()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture
def server(path, key, clock):
    with Server(path, key, clock) as server:
        yield server


@pytest.fixture
def client(clock, key):
    return Client(clock, key.key)


def resigned(key, **changes):
    """Has a statement written otherwise, by whoever has the key. A member that is UNSET is left out."""

    def change(body):
        tree = msgspec.json.decode(body)
        statement = msgspec.json.decode(tree["statement"]) | changes
        statement = {name: value for name, value in statement.items() if value is not UNSET}
        tree["statement"] = msgspec.json.encode(statement, order="sorted").decode()
        tree["signature"] = base64.b64encode(key.sign(statement_input(tree["statement"]))).decode()
        return msgspec.json.encode(tree)

    return change


def flipped(body, seed):
    """The answer with one character of its statement or of its signature changed for another, or with another key."""
    tree = msgspec.json.decode(body)
    member = ("statement", "signature", "key")[seed // 7 % 3]
    if member == "key":
        tree["key"] = SigningKey.new().key
    else:
        place = seed % len(tree[member].rstrip("="))
        place -= member == "signature" and place == 85  # of the last character not all bits count
        letter = "A" if tree[member][place] != "A" else "B"
        tree[member] = tree[member][:place] + letter + tree[member][place + 1 :]
    return msgspec.json.encode(tree)


@pytest.mark.spec("15.10", "15.11")
@given(
    steps=st.lists(st.tuples(st.sets(st.sampled_from(KEYS), min_size=1), st.booleans()), max_size=12),
    seed=st.integers(0, 10**9),
)
@settings(max_examples=60, deadline=None)
def test_an_honest_server_is_believed_and_told_is_all_that_changed(steps, seed):
    clock, key = Clock(), SigningKey.new()
    with Server(InProcessLog(), key, clock) as server:
        client = Client(clock, key.key)
        client.follow(server)
        touched = set()
        for number, (keys, is_asked) in enumerate(steps, start=1):
            clock.now += 60
            server.change(keys, number)
            touched |= keys
            if is_asked:
                before, named = client.held, client.asking
                answer = server.answer(named)
                with pytest.raises(Distrust):
                    client.take(flipped(answer, seed), named)
                assert client.held == before
                account = client.take(answer, named)
                assert client.held.at == account.to == server.at
                assert set(account.moved.tables["codes"].changed) == touched
                touched = set()


@pytest.mark.spec("15.14")
def test_who_is_too_far_behind_learns_where_the_log_is_but_not_what_moved(clock, key):
    with Server(InProcessLog(), key, clock) as server:
        client = Client(clock, key.key)
        client.follow(server)
        for number in range(1, MOST_ENTRIES + 2):
            server.change(["k0"], number)
        account = client.follow(server)
        assert (account.unknown, account.moved, client.held.at) == ("old", UNSET, server.at)


@pytest.mark.spec("15.10")
def test_forged(server, client):
    with pytest.raises(Distrust, match="not pinned"):
        Client(server.clock, SigningKey.new().key).follow(server)

    def forge(body):
        tree = msgspec.json.decode(body)
        tree["statement"] = tree["statement"].replace('"to":"', '"to":"A')
        return msgspec.json.encode(tree)

    with pytest.raises(Distrust, match="forged"):
        client.follow(server, forge)
    for malformed in (b"", b"{}", b"null", b"[" * 9999, b'{"statement":"{}"}', b"x" * (4 * 1024 * 1024 + 1)):
        with pytest.raises(Distrust):
            client.follow(server, lambda body, malformed=malformed: malformed)
    assert client.held is None


@pytest.mark.spec("15.10")
def test_replayed(server, client):
    """What was answered to another question counts for nothing, though nothing has changed since."""
    first = client.asking
    answer = server.answer(first)
    client.take(answer, first)
    held = client.held
    for _ in range(2):
        with pytest.raises(Distrust, match="another question: it is replayed"):
            client.take(answer, client.asking)
        assert client.held == held
        server.change(["k0"], 1)


@pytest.fixture
def asked_otherwise(server, client):
    """Somebody on the way puts another position into a question, and leaves its nonce as it is."""
    client.follow(server)
    before = server.at
    server.change(["k0"], 1)
    client.follow(server)
    server.change(["k1"], 2)

    def ask(instead):
        named = client.asking
        text = f"{instead.format(end=server.at, before=before)};n={named.nonce}"
        return named, server.answer(Named.from_header(text))

    return ask


@pytest.mark.spec("15.10")
@pytest.mark.parametrize("instead", ["{before}:m", "{before}", "Abcdef1:m", "Abcdef9:m"])
def test_an_answer_about_another_position_than_was_asked_about_is_none(client, asked_otherwise, instead):
    named, answer = asked_otherwise(instead)
    with pytest.raises(Distrust, match="another question"):
        client.take(answer, named)


@pytest.mark.spec("15.10")
@pytest.mark.parametrize("instead", ["*", "{end}", "{end}:m"])
def test_an_answer_that_does_not_say_what_has_moved_moves_nothing(client, asked_otherwise, instead):
    knowledge = Knowledge(place=Place(at=client.held.at, mark="m"), vouched=client.held)
    word = KeysWord(client.trust, ORIGIN, client.clock)
    named, body = asked_otherwise(instead)
    answer = word.answer(Reply(200, body), named, knowledge)
    verdict, place = word.judged(knowledge, named.header, answer.account, answer)
    assert (type(verdict), place.at) == (Doubted, client.held.at)


@pytest.mark.spec("15.10")
def test_expired(server, client):
    named = client.asking
    answer = server.answer(named)
    server.clock.now += 24 * 3600 - 1
    client.take(answer, named)
    server.clock.now += 1
    client.held = None
    with pytest.raises(Distrust, match="expired"):
        client.take(answer, named)
    client.follow(server)


@pytest.mark.spec("15.10")
def test_of_the_future(server, client):
    for skew_s, is_believed in ((300, True), (301, False)):
        named = client.asking
        server.clock.now += skew_s
        answer = server.answer(named)
        server.clock.now -= skew_s
        if is_believed:
            client.take(answer, named)
        else:
            with pytest.raises(Distrust, match="future"):
                client.take(answer, named)


@pytest.mark.spec("15.10")
def test_rolled_back_and_forked(server, client, path, tmp_path):
    """A server that is set up again from an old copy of its log, and goes on differently."""
    client.follow(server)
    server.change(["k0"], 1)
    client.follow(server)
    server.provider.close()
    shutil.copy(path, tmp_path / "old.db")
    with (
        Server(path, server.key, server.clock) as on,
        Server(tmp_path / "old.db", server.key, server.clock) as old,
    ):
        on.change(["k1"], 2)
        client.follow(on)
        held = client.held
        with pytest.raises(Distrust, match=f"ends before {held.at}, which has been seen: it was rolled back"):
            client.follow(old)
        old.change(["k2"], 2)
        with pytest.raises(Distrust, match="two different states as number 2"):
            client.follow(old)
        old.change(["k3"], 3)
        with pytest.raises(Distrust, match=f"does not go on from {held.at}, for which it has vouched"):
            client.follow(old)
        assert client.held == held
        on.change(["k4"], 4)
        assert set(client.follow(on).moved.tables["codes"].changed) == {"k4"}
        assert Position.from_text(client.held.at).number == 3


@pytest.mark.spec("15.10")
def test_the_same_position_with_another_digest_is_another_state(server, client, key):
    """The check of a position is short; the digest is not."""
    client.follow(server)
    with pytest.raises(Distrust, match="two different states as number 0"):
        client.follow(server, resigned(key, digest="0" * 64))


@pytest.mark.spec("15.10")
@pytest.mark.parametrize("unknown", ["ahead", "foreign"])
def test_a_position_that_was_vouched_for_is_not_disowned(server, client, key, unknown):
    client.follow(server)
    server.change(["k0"], 1)
    with pytest.raises(Distrust, match="does not go on from"):
        client.follow(server, resigned(key, unknown=unknown, moved=UNSET))


@pytest.mark.spec("15.10", "15.13")
def test_another_log(server, client, tmp_path):
    client.follow(server)
    with Server(tmp_path / "new.db", server.key, server.clock) as new:
        for number in range(1, 4):
            with pytest.raises(Distrust, match="another log; forget all of this root"):
                client.follow(new)
            new.change(["k0"], number)
        client.held = None  # as when all is forgotten
        client.follow(new)
        assert client.held.at == new.at


@pytest.mark.spec("15.6", "15.10")
@pytest.mark.parametrize(
    ("told", "root", "is_of_it"),
    [
        ("", ORIGIN, True),
        ("", "https://api.example", True),
        ("https://API.example/", ORIGIN, True),
        ("https://api.example", f"{ORIGIN}/v1", False),
        ("/v1", f"{ORIGIN}/v1", True),
        ("https://api.example/v1", f"{ORIGIN}/v1", True),
        ("/v1", ORIGIN, False),
        ("", f"{ORIGIN}/v1", False),
        ("/v2", f"{ORIGIN}/v1", False),
        ("/v1/sub", f"{ORIGIN}/v1", False),
        ("https://other.example", ORIGIN, False),
        ("http://api.example", ORIGIN, False),
        ("https://other.example/v1", f"{ORIGIN}/v1", False),
        (":80", ORIGIN, False),
        ("@other.example", ORIGIN, False),
        ("ftp://api.example", ORIGIN, False),
    ],
)
def test_of_another_root(server, key, clock, told, root, is_of_it):
    client = Client(clock, key.key, root=root)
    if is_of_it:
        client.follow(server, resigned(key, root=told))
    else:
        with pytest.raises(Distrust, match=r"is of a contract at .*, not of this one"):
            client.follow(server, resigned(key, root=told))


@pytest.mark.spec("15.9", "15.10")
def test_a_key_names_the_one_that_takes_its_place(path, clock):
    keys = [SigningKey.new() for _ in range(3)]
    client = Client(clock, keys[0].key)
    with Server(path, keys[0], clock) as server:
        client.follow(server)
    with Server(path, keys[1], clock) as server, pytest.raises(Distrust, match="not pinned"):
        client.follow(server)
    chain = [keys[0].endorse(keys[1].key), keys[1].endorse(keys[2].key)]
    with Server(path, SigningKey(keys[2]._private, chain), clock) as server:
        client.follow(server)
        assert set(client.held.retired_keys) == {keys[0].key, keys[1].key}
    for retired in keys[:2]:
        with Server(path, retired, clock) as server, pytest.raises(Distrust, match="has been replaced"):
            client.follow(server)
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


def test_where_a_key_says_that_the_log_is_binds_nobody_once_it_is_no_longer_pinned(path, clock):
    old, new = SigningKey.new(), SigningKey.new()
    client = Client(clock, old.key)
    with Server(path, old, clock) as server:
        client.follow(server)
        far_ahead = resigned(old, to="AAAAAA999999", log="another", expires_at=int(clock.now) + 10**9)
        client.held = msgspec.structs.replace(client.held, log="another")
        client.follow(server, far_ahead)  # whoever has stolen the old key
    with Server(path, new, clock) as server:
        client.trust = trust({ORIGIN: [old.key, new.key]})
        with pytest.raises(Distrust, match="another log"):
            client.follow(server)
        client.trust = trust({ORIGIN: [new.key]})
        client.follow(server)
        assert (client.held.at, client.held.key, client.held.rests_on) == (server.at, new.key, ())
        assert client.held.expires_at < clock.now + 10**6


def test_of_several_keys_that_have_led_somewhere_all_must_stay_pinned(path, clock):
    old, new, unused = (SigningKey.new() for _ in range(3))
    client = Client(clock, old.key, new.key, unused.key)
    for key in (old, new):
        with Server(path, key, clock) as server:
            client.follow(server)
    knowledge = Knowledge(place=Place(at=client.held.at), vouched=client.held)
    for pins, is_vouched_for in (
        ([old, new, unused], True),
        ([old, new], True),
        ([new, unused], False),
        ([old], False),
    ):
        word = trust({ORIGIN: [key.key for key in pins]}).word_about(ORIGIN, clock)
        assert (word.lacks(knowledge) is None) is is_vouched_for


@pytest.mark.spec("15.9")
def test_an_endorsement_is_a_signature_over_both_keys():
    old, new = SigningKey.new(), SigningKey.new()
    one = old.endorse(new.key)
    text = f'shelflife key 1\n{{"by":"{old.key}","key":"{new.key}"}}'
    assert (one.key, one.by) == (new.key, old.key)
    assert one.signature == base64.b64encode(old.sign(text.encode())).decode()


def test_endorsements_count_in_any_order_and_bring_back_nobody(path, clock):
    keys = [SigningKey.new() for _ in range(3)]
    client = Client(clock, keys[0].key)
    backwards = [keys[1].endorse(keys[2].key), keys[0].endorse(keys[1].key)]

    def bring_back(body):
        answer = msgspec.json.decode(body)
        answer["endorsements"].append(msgspec.to_builtins(keys[2].endorse(keys[0].key)))
        return msgspec.json.encode(answer)

    with Server(path, SigningKey(keys[2]._private, backwards), clock) as server:
        client.follow(server)
        client.follow(server, bring_back)  # a key that was retired stays so, and takes nobody's place
    assert set(client.held.retired_keys) == {keys[0].key, keys[1].key}
    with Server(path, keys[0], clock) as server, pytest.raises(Distrust, match="has been replaced"):
        client.follow(server)


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
    with pytest.raises(Distrust, match="a key or a signature that is none"):
        client.follow(server, lambda body: msgspec.json.encode(msgspec.json.decode(body) | {member: value}))


@pytest.mark.parametrize(
    "changes",
    [
        {"to": "nowhere"},
        {"from": "nowhere"},
        {"unknown": "somehow"},
        {"log": ""},
        {"log": "l" * 129},
        {"digest": ""},
        {"digest": "0" * 65},
        {"expires_at": "never"},
        {"made_at": UNSET},
        {"root": UNSET},
        {"log": UNSET},
        {"digest": UNSET},
        {"moved": {"tables": {"no name": {}}}},
    ],
)
def test_what_no_honest_server_signs_is_not_believed(server, client, key, changes):
    with pytest.raises(Distrust):
        client.follow(server, resigned(key, **changes))
    assert client.held is None


@pytest.mark.parametrize("expires_at", [10**10, 2**63, 2**64, 10**30])
def test_a_time_may_be_as_far_off_as_it_likes(server, client, key, expires_at):
    client.follow(server, resigned(key, expires_at=expires_at))
    assert client.held.expires_at == expires_at


def test_too_many_changes_to_go_through_are_any_change(server, client, key):
    client.follow(server)
    server.change(["k0"], 1)
    tables = {"codes": {"changed": [f"key {n}" for n in range(10_001)]}, "others": {"changed": ["one"]}}
    moved = client.follow(server, resigned(key, moved={"tables": tables})).moved
    assert {name: one.known for name, one in moved.tables.items()} == {"codes": False, "others": True}


NAMED = Named(Position(1, "Abcdef"), "m", "n.1")


@pytest.mark.spec("15.11")
@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (Account(to="Abcdef1"), Current),
        (Account(to="Abcdef2"), Doubted),
        (Account(to="Abcdef0"), Doubted),
        (Account(to="Xbcdef1", since="Abcdef1:m", unknown="foreign"), Doubted),
        (Account(to="Abcdef2", since="Abcdef1:m", moved={}), Doubted),
        (Account(to="Abcdef2", since="Abcdef1:m", moved={}, nonce="n.1"), Doubted),
        (Account(to="Abcdef9", since="Abcdef1:m", unknown="old", nonce="n.1"), Doubted),
    ],
)
def test_a_reply_that_is_not_signed_moves_nothing(server, client, said, verdict):
    client.follow(server)
    vouched = msgspec.structs.replace(client.held, at="Abcdef1")
    knowledge = Knowledge(place=Place(at="Abcdef1", mark="m"), vouched=vouched)
    word = KeysWord(client.trust, ORIGIN, client.clock)
    judged, place = word.judged(knowledge, NAMED.header, said, None)
    assert (type(judged), place.at, place.mark) == (verdict, "Abcdef1", "m")
    assert bool(place.doubt) == (verdict is Doubted)
    client.clock.now += 24 * 3600
    judged, place = word.judged(knowledge, NAMED.header, said, None)
    assert (type(judged), place.at) == (Doubted, "Abcdef1")


@pytest.mark.spec("15.14")
@pytest.mark.parametrize(
    ("is_by_a_key", "verdict"), [(True, (Current, Forward)), (False, (Adopted, Adopted))]
)
def test_from_where_no_key_has_led_nothing_goes_on(server, client, is_by_a_key, verdict):
    """A memory without keys that shares the file may have been led anywhere, by anybody."""
    word = KeysWord(client.trust, ORIGIN, client.clock)
    client.follow(server)
    found = []
    for _ in verdict:
        knowledge = Knowledge(
            place=Place(at=server.at, mark="m"),
            vouched=client.held if is_by_a_key else msgspec.structs.replace(client.held, at="Abcdef0"),
        )
        if found:
            server.change(["k0"], 1)
        named = knowledge.place.new_question()
        answer = word.answer(Reply(200, server.answer(named)), named, knowledge)
        judged, place = word.judged(knowledge, named.header, answer.account, answer)
        found.append(type(judged))
        assert place.at == server.at
    assert tuple(found) == verdict
