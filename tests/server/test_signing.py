"""Signed states at the server: one signature a state, numbers that survive everything."""

import threading

import msgspec
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client.reading import changes_in, read_signed_states, read_statement
from shelflife.contract import Rule
from shelflife.contract.signed import statement_input
from shelflife.contract.versions import Versions
from shelflife.integrations.ed25519 import SigningKey, is_signed_by
from shelflife.server import Provider, Signing, StateFileError, UsageError, WireFormat
from shelflife.server.wire import Level
from tests.calling import calling

TABLES = {"codes": {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}, "promos": {"SUMMER": {}}}
DAY_S = 24 * 3600


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


class Counting(SigningKey):
    """A key that counts what it signs."""

    signed_count = 0

    def sign(self, message):
        self.signed_count += 1
        return super().sign(message)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def key():
    return Counting.new()


@pytest.fixture
def provide(tmp_path, clock, key):
    made = []

    def provide(*, valid_s=DAY_S, **options):
        signing = Signing(signer=key, clock=clock, valid_s=valid_s)
        settings = {"state_file": tmp_path / "state.db", "signing": signing} | options
        made.append(Provider(TABLES, **settings))
        return made[-1]

    yield provide
    for provider in made:
        provider.close()


def statements_of(provider, since=None):
    answer = read_signed_states(
        msgspec.json.encode(provider.lineage.answer(since, provider.face(provider.state, {})))
    )
    for one in answer.statements:
        assert is_signed_by(one.key, statement_input(one.statement), one.signature)
    return [read_statement(one.statement) for one in answer.statements]


@pytest.mark.spec("15.2", "15.3")
def test_a_statement_names_the_state_and_is_signed(provide, key, clock):
    provider = provide()
    (statement,) = statements_of(provider)
    assert (statement.table_versions, statement.rules_version) == (
        provider.state.table_versions,
        provider.state.rules.version,
    )
    assert (statement.sequence, statement.previous, statement.moved) == (1, None, None)
    assert (statement.made_at, statement.expires_at) == (clock.now, clock.now + DAY_S)
    (signed,) = provider.lineage.answer(None, provider.face(provider.state, {})).statements
    assert signed.key == key.key
    assert (
        signed.statement
        == msgspec.json.encode(msgspec.json.decode(signed.statement), order="sorted").decode()
    )
    assert not is_signed_by(SigningKey.new().key, statement_input(signed.statement), signed.signature)
    assert not is_signed_by(key.key, statement_input(signed.statement + " "), signed.signature)


@pytest.mark.spec("15.4", "15.5")
def test_each_statement_goes_on_from_the_one_before(provide):
    provider = provide()
    (first,) = statements_of(provider)
    provider.registry.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {}})
    (second,) = statements_of(provider, since=first.sequence)
    assert (second.lineage, second.sequence, second.previous) == (first.lineage, 2, first.versions.digest)
    assert first.versions.digest == Versions(first.table_versions, first.rules_version).digest
    told = changes_in(second, Versions(first.table_versions, first.rules_version)).tables
    assert told.keys() == {"codes"}
    assert (told["codes"].added, told["codes"].removed, told["codes"].changed) == (("new",), (), ("growth",))


def test_rules_are_told_too_and_below_level_6_they_are_not(provide, tmp_path):
    provider = provide()
    statements_of(provider)
    provider.registry.reload_rules([Rule(from_table="codes", to_table="promos", relation="needs")])
    (second,) = statements_of(provider)
    assert [rule.id for rule in second.moved.rules.added] == ["codes:needs"]
    coarse = provide(wire=WireFormat(level=Level.VECTORS), state_file=tmp_path / "coarse.db")
    assert statements_of(coarse)[0].rules_version is None


def test_one_signature_a_state_however_often_it_is_asked_for(provide, key):
    provider = provide()
    for round in range(3):
        for _ in range(10):
            provider.lineage.answer(None, provider.face(provider.state, {}))
        assert key.signed_count == round + 1
        provider.registry.reload_table("codes", set={"growth": {"n": round}})


def test_states_that_nobody_asked_about_are_not_signed(provide, key):
    provider = provide()
    statements_of(provider)
    for n in range(5):
        provider.registry.reload_table("codes", set={"growth": {"n": n}})
    provider.registry.reload_table("codes", set={"growth": {"code": "SUMMER"}, "scale": {"code": "OTHER"}})
    (second,) = statements_of(provider, since=1)
    assert key.signed_count == 2
    # told is what differs, not what happened: growth was changed and changed back
    assert second.moved.tables["codes"].changed == ("scale",)


@pytest.mark.spec("15.6")
def test_a_statement_is_made_anew_when_half_of_its_time_has_passed(provide, clock, key):
    provider = provide()
    (first,) = statements_of(provider)
    clock.now += DAY_S // 2 - 1
    assert statements_of(provider) == [first]
    clock.now += 1
    (renewed,) = statements_of(provider)
    assert renewed == msgspec.structs.replace(
        first, made_at=int(clock.now), expires_at=int(clock.now) + DAY_S
    )
    assert key.signed_count == 2


def test_a_clock_that_was_wrong_for_a_while_is_believed_again_once_it_is_right(provide, clock):
    provider = provide()
    statements_of(provider)
    clock.now += 365 * DAY_S
    statements_of(provider)
    clock.now -= 365 * DAY_S
    assert statements_of(provider)[0].made_at == clock.now
    provider.registry.reload_table("codes", remove=["scale"])
    assert statements_of(provider)[0].made_at == clock.now


@pytest.mark.spec("15.6")
@pytest.mark.parametrize("valid_s", [60, DAY_S, 30 * DAY_S])
def test_a_statement_has_time_left_whatever_the_server_signed_for_before(provide, clock, valid_s):
    provider = provide(valid_s=60)
    statements_of(provider)
    provider.close()
    clock.now += 31
    (statement,) = statements_of(provide(valid_s=valid_s))
    assert statement.expires_at == clock.now + valid_s


def test_a_statement_that_was_made_anew_is_so_after_a_restart(provide, clock, key):
    provider = provide()
    statements_of(provider)
    clock.now += DAY_S // 2
    renewed = statements_of(provider)
    provider.close()
    clock.now += 10
    assert statements_of(provide()) == renewed


@pytest.mark.spec("15.7")
def test_an_answer_is_never_longer_than_a_client_reads(provide):
    provider = provide()
    statements_of(provider)
    for n in range(20):
        provider.registry.reload_table("codes", set={f"{key:04x}": {"n": n} for key in range(8000)})
        statements_of(provider)
    assert [one.sequence for one in statements_of(provider, since=1)] == [21]
    assert [one.sequence for one in statements_of(provider, since=18)] == [19, 20, 21]


@pytest.mark.spec("15.4")
def test_lineage_and_numbers_survive_a_restart(provide):
    provider = provide()
    statements_of(provider)
    provider.registry.reload_table("codes", remove=["scale"])
    before = statements_of(provider, since=0)
    provider.close()
    provider = provide()
    assert statements_of(provider, since=0) == before
    provider.registry.reload_table("codes", set={"more": {}})
    assert statements_of(provider, since=2)[0].sequence == 3
    assert statements_of(provider)[0].previous == before[-1].versions.digest


@pytest.mark.spec("15.7")
def test_a_client_that_is_too_far_behind_is_told_the_newest_alone(provide):
    provider = provide()
    for n in range(70):
        provider.registry.reload_table("codes", set={"growth": {"n": n}})
        statements_of(provider)
    assert [one.sequence for one in statements_of(provider, since=7)] == list(range(8, 71))
    assert [one.sequence for one in statements_of(provider, since=6)] == [70]
    assert [one.sequence for one in statements_of(provider)] == [70]
    assert [one.sequence for one in statements_of(provider, since=70)] == [70]
    assert [one.sequence for one in statements_of(provider, since=99)] == [70]


def test_a_move_that_is_too_long_to_tell_is_left_out(provide):
    provider = provide()
    statements_of(provider)
    provider.registry.reload_table("codes", set={f"key-{n:060}": {} for n in range(1200)})
    assert statements_of(provider)[0].moved is None


def test_no_number_is_given_to_two_states_while_everybody_reloads_and_asks(provide):
    provider = provide()
    seen, failed = [], []

    def ask(worker):
        try:
            for n in range(40):
                provider.registry.reload_table("codes", set={f"w{worker}": {"n": n}})
                seen.extend(statements_of(provider, since=max(0, n - 3)))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    by_number = {}
    for one in seen:
        assert by_number.setdefault(one.sequence, one) == one
    for number, one in by_number.items():
        if number - 1 in by_number:
            assert one.previous == by_number[number - 1].versions.digest


def test_a_number_that_cannot_be_written_down_is_not_given_out(provide):
    provider = provide()
    statements_of(provider)
    provider.registry.reload_table("codes", remove=["scale"])
    provider.close()
    with pytest.raises(StateFileError):
        provider.lineage.answer(1, provider.face(provider.state, {}))
    assert statements_of(provide(), since=1)[0].sequence == 2


def test_signing_needs_a_state_file_and_some_time(key):
    with pytest.raises(UsageError, match="needs a state file"):
        Provider(TABLES, signing=Signing(signer=key))
    with pytest.raises(UsageError, match="a signer is a SigningKey, not str"):
        Signing(signer="signing.pem")
    with pytest.raises(UsageError, match="disclosure takes a Disclosure, not str"):
        Provider(TABLES, disclosure="a secret of sixteen bytes")
    with pytest.raises(UsageError, match="at least 60 s"):
        Signing(signer=key, valid_s=59)


@pytest.mark.spec("15.1")
def test_over_http_and_only_where_states_are_signed(key, tmp_path):
    provider = acme_provider(state_file=tmp_path / "state.db", signing=Signing(signer=key))
    with calling(acme_app(provider)) as client:
        answer = client.get("/contract/signed")
        assert answer.headers["cache-control"] == "no-store"
        (signed,) = read_signed_states(answer.content).statements
        assert is_signed_by(key.key, statement_input(signed.statement), signed.signature)
        assert client.get("/contract/signed?since=x").status_code == 400
        assert client.post("/contract/signed").status_code == 405
        assert "/contract/signed" in client.get("/openapi.json").json()["paths"]
    provider.close()
    with calling(acme_app(acme_provider())) as client:
        assert client.get("/contract/signed").status_code == 404
        assert "/contract/signed" not in client.get("/openapi.json").json()["paths"]
