"""Signing at the server: each answer to the question where the log is, for the client and the contract that it is given to."""

import json
import shutil
import threading

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client.statements import read_signed_statement, read_statement
from shelflife.contract import Rule
from shelflife.contract.positions import Named, Position
from shelflife.contract.signed import statement_input
from shelflife.integrations.asgi import contract_app
from shelflife.integrations.ed25519 import SigningKey, is_signed_by
from shelflife.server import Disclosure, Provider, Signing, UsageError, WireFormat, fix
from shelflife.server.endpoints import ContractEndpoints, EndpointCall
from shelflife.server.wire import Level
from tests.acme_world import rotate
from tests.calling import calling
from tests.open_contract import openly

TABLES = {"codes": {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}, "promos": {"SUMMER": {}}}
DAY_S = 24 * 3600
SECRET = "a secret of more than sixteen bytes"


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def key():
    return SigningKey.new()


@pytest.fixture
def provide(tmp_path, clock, key):
    made = []

    def provide(*, valid_s=DAY_S, **options):
        signing = Signing(signer=key, clock=clock, valid_s=valid_s)
        settings = {"log": tmp_path / "log.db", "signing": signing} | options
        made.append(Provider(TABLES, **settings))
        return made[-1]

    yield provide
    for provider in made:
        provider.close()


def asked(provider, query, headers=None, root_path=""):
    """What the endpoint answers."""
    endpoints = ContractEndpoints(provider, lambda operation: None)
    return endpoints.answer(
        EndpointCall("GET", "/contract/signed", query, headers or {}, root_path=root_path)
    )


def statement_of(provider, base="*", nonce="n1", **options):
    """What is signed for a question."""
    answer = asked(provider, f"from={base}&nonce={nonce}", **options)
    assert answer.status == 200, answer.body
    signed = read_signed_statement(answer.body)
    assert is_signed_by(signed.key, statement_input(signed.statement), signed.signature)
    return read_statement(signed.statement)


@pytest.mark.spec("15.2", "15.3")
def test_a_statement_is_the_answer_with_what_binds_it_to_a_log_a_root_and_a_time(provide, key, clock):
    provider = provide()
    before = statement_of(provider).to
    provider.registry.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {}})
    signed = read_signed_statement(asked(provider, f"from={before}:m1&nonce=n2").body)
    face = provider.face(provider.state, {})
    plain = face.account(Named(Position.from_text(before), "m1", "n2"))
    told = msgspec.json.decode(signed.statement)
    assert told == msgspec.json.decode(msgspec.json.encode(plain)) | {
        "root": "",
        "log": face.log_id,
        "digest": face.digest,
        "made_at": int(clock.now),
        "expires_at": int(clock.now) + DAY_S,
    }
    assert (told["from"], told["nonce"], told["to"]) == (f"{before}:m1", "n2", str(face.position))
    assert told["moved"]["tables"]["codes"] == {
        "added": ["new"],
        "changed": ["growth"],
        "columns": {"growth": ["code"]},
    }
    assert signed.statement == json.dumps(told, sort_keys=True, separators=(",", ":"))
    assert signed.key == key.key
    assert is_signed_by(key.key, b"shelflife statement 2\n" + signed.statement.encode(), signed.signature)
    assert not is_signed_by(SigningKey.new().key, statement_input(signed.statement), signed.signature)
    assert not is_signed_by(key.key, statement_input(signed.statement + " "), signed.signature)


@pytest.mark.spec("15.4")
def test_log_and_digest_survive_a_restart_and_go_on_with_every_change(provide):
    provider = provide()
    seen = [statement_of(provider)]
    for n in range(3):
        provider.registry.reload_table("codes", set={"growth": {"n": n}})
        seen.append(statement_of(provider))
    assert len({one.digest for one in seen}) == 4
    assert {one.log for one in seen} == {seen[0].log}
    provider.close()
    again = statement_of(provide())
    assert (again.log, again.to, again.digest) == (seen[-1].log, seen[-1].to, seen[-1].digest)


@pytest.mark.spec("15.4")
def test_what_went_another_way_has_another_digest_though_all_versions_are_the_same(provide, tmp_path):
    first = provide(log=tmp_path / "one.db")
    log = statement_of(first).log
    assert statement_of(provide(log=tmp_path / "another.db")).log != log
    first.close()
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    one, two = (provide(log=tmp_path / name) for name in ("one.db", "two.db"))
    for codes in ("A", "B"):
        one.registry.reload_table("codes", set={"growth": {"code": codes}})
    for codes in ("C", "B"):
        two.registry.reload_table("codes", set={"growth": {"code": codes}})
    assert one.state.table_versions == two.state.table_versions
    ends = [statement_of(each) for each in (one, two)]
    assert {end.log for end in ends} == {log}
    assert {Position.from_text(end.to).number for end in ends} == {2}
    assert ends[0].digest != ends[1].digest
    assert ends[0].to != ends[1].to


@pytest.mark.spec("15.5")
def test_each_question_is_answered_anew_from_the_end_of_the_log(provide, clock):
    one, other = provide(), provide()
    first = statement_of(one, nonce="n1")
    clock.now += 10
    second = statement_of(one, nonce="n2")
    assert second == msgspec.structs.replace(
        first, nonce="n2", made_at=first.made_at + 10, expires_at=first.expires_at + 10
    )
    one.registry.reload_table("codes", remove=["scale"])
    assert other.registry.state.number == one.registry.state.number - 1
    assert statement_of(other).digest == statement_of(one).digest


@pytest.mark.spec("15.5")
def test_what_cannot_be_found_out_is_not_signed(tmp_path, key):
    def provider():
        return acme_provider(log=tmp_path / "log.db", signing=Signing(signer=key))

    old, new = provider(), provider()
    old.be_ready()
    assert asked(old, "from=*&nonce=n").status == 200

    @new.policy(operation="POST /subscriptions")
    def another(request, tables):
        return fix("NEVER") if request.get("never") else None

    new.registry.declare_policies(new.policies.look())
    refused = asked(old, "from=*&nonce=n")
    assert (refused.status, dict(refused.headers)["Retry-After"]) == (503, "5")
    for each in (old, new):
        each.close()
    (tmp_path / "log.db").write_bytes(b"no log" * 1000)
    assert asked(old, "from=*&nonce=n").status == 503


def test_rules_are_told_too_and_below_level_6_they_are_not(provide, tmp_path):
    tie = Rule(from_table="codes", to_table="promos", relation="needs")
    for name, wire, expected in (
        ("fine.db", WireFormat(), ["codes:needs"]),
        ("coarse.db", WireFormat(level=Level.VECTORS), None),
    ):
        provider = provide(wire=wire, log=tmp_path / name)
        before = statement_of(provider)
        provider.registry.reload_rules([tie])
        moved = statement_of(provider, before.to).moved
        assert (None if moved.rules is None else [rule.id for rule in moved.rules.added]) == expected


@pytest.mark.spec("15.7")
@pytest.mark.parametrize("valid_s", [60, DAY_S, 30 * DAY_S])
def test_a_statement_has_all_its_time_left_when_it_is_given(provide, clock, valid_s):
    provider = provide(valid_s=valid_s)
    for _ in range(3):
        statement = statement_of(provider)
        assert (statement.made_at, statement.expires_at) == (clock.now, clock.now + valid_s)
        clock.now += valid_s / 2


def test_a_clock_that_was_wrong_for_a_while_leaves_nothing_behind(provide, clock):
    provider = provide()
    clock.now += 365 * DAY_S
    statement_of(provider)
    clock.now -= 365 * DAY_S
    assert statement_of(provider).made_at == clock.now


@pytest.mark.spec("15.8")
def test_an_answer_is_never_longer_than_a_client_reads(provide):
    provider = provide()
    first = statement_of(provider)
    provider.registry.reload_table("codes", set={f"short-{key}": {} for key in range(9_000)})
    assert len(statement_of(provider, first.to).moved.tables["codes"].added) == 9_000
    provider.registry.reload_table("codes", set={f"{key:0500}": {} for key in range(3_000)})
    too_far = statement_of(provider, f"{first.to}:m1")
    assert (too_far.unknown, too_far.since, too_far.moved) == ("old", f"{first.to}:m1", msgspec.UNSET)
    assert too_far.to == str(provider.face(provider.state, {}).position)


def test_why_it_does_not_go_on_from_a_position_is_signed_too(provide):
    provider = provide()
    provider.registry.reload_table("codes", remove=["scale"])
    number, check = Position.from_text(statement_of(provider).to)
    assert statement_of(provider, Position(number, check.swapcase())).unknown == "foreign"
    assert statement_of(provider, Position(number - 1, check)).unknown == "foreign"
    assert statement_of(provider, Position(number + 1, check)).unknown == "ahead"


def test_no_two_states_of_one_number_are_signed_while_everybody_reloads_and_asks(provide):
    workers = [provide() for _ in range(4)]
    seen, failed = [], []

    def ask(number):
        try:
            for n in range(10):
                workers[number].registry.reload_table("codes", set={f"w{number}": {"n": n}})
                seen.append(statement_of(workers[number]))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert {one.log for one in seen} == {seen[0].log}
    by_number = {}
    for one in seen:
        assert by_number.setdefault(Position.from_text(one.to).number, one.digest) == one.digest
    assert len(by_number) > 1


@pytest.mark.spec("15.15")
def test_each_client_has_a_log_and_a_digest_of_its_own_and_keeps_them(provide):
    disclosure = Disclosure(
        secret=SECRET, client=lambda headers: headers["x-client"], sees_diffs=lambda _: True
    )
    provider = provide(disclosure=disclosure)
    clients = [{"x-client": name} for name in ("one", "two")]
    before = [statement_of(provider, headers=headers) for headers in clients]
    provider.registry.reload_table("codes", set={"growth": {"code": "WINTER"}})
    after = [
        statement_of(provider, seen.to, headers=headers)
        for seen, headers in zip(before, clients, strict=True)
    ]
    for seen in (before, after):
        assert Position.from_text(seen[0].to).number == Position.from_text(seen[1].to).number
        for of in (lambda one: one.log, lambda one: one.digest, lambda one: one.to):
            assert of(seen[0]) != of(seen[1])
    assert [one.log for one in after] == [one.log for one in before]
    aliases = [disclosure.aliases(name) for name in ("one", "two")]
    for told, words in zip(after, aliases, strict=True):
        assert told.moved.tables.keys() == {words.table("codes")}
        assert told.moved.tables[words.table("codes")].changed == (words.key("codes", "growth"),)
    # what one of them was given says nothing to the other
    assert statement_of(provider, before[0].to, headers=clients[1]).unknown == "foreign"
    provider.close()
    again = provide(disclosure=disclosure)
    assert [statement_of(again, headers=headers).digest for headers in clients] == [
        one.digest for one in after
    ]
    # neither the log nor its digest is told by its own name
    plain = provide()
    shown = {plain.state.log_id, plain.state.digest, plain.face(plain.state, {}).digest}
    assert shown.isdisjoint({each for one in after for each in (one.log, one.digest)})


def test_signing_needs_a_log_and_some_time(key):
    with pytest.raises(UsageError, match="needs a log"):
        Provider(TABLES, signing=Signing(signer=key))
    with pytest.raises(UsageError, match="a signer is a SigningKey, not str"):
        Signing(signer="signing.pem")
    with pytest.raises(UsageError, match="disclosure takes a Disclosure, not str"):
        Provider(TABLES, disclosure="a secret of sixteen bytes")
    with pytest.raises(UsageError, match="at least 60 s"):
        Signing(signer=key, valid_s=59)


@pytest.mark.spec("15.1")
def test_over_http_and_only_where_states_are_signed(key, tmp_path):
    provider = acme_provider(log=tmp_path / "log.db", signing=Signing(signer=key))
    with calling(acme_app(provider)) as client:
        answer = client.get("/contract/signed?from=*&nonce=n1")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json().keys() == {"statement", "key", "signature", "endorsements"}
        signed = read_signed_statement(answer.content)
        assert is_signed_by(key.key, statement_input(signed.statement), signed.signature)
        named = Named(Position.from_text(read_statement(signed.statement).to), "m1", "n2")
        rotate(provider)
        query = {"from": named.base, "nonce": named.nonce}
        told = read_statement(
            read_signed_statement(client.get("/contract/signed", params=query).content).statement
        )
        plain = client.get("/contract/changes", params=query).json()
        assert plain == {name: msgspec.json.decode(told.text)[name] for name in plain}
        assert plain["moved"]["tables"].keys() == {"active_csm_codes"}
        for wrong in (
            "",
            "?nonce=n",
            "?from=x",
            "?from=*&nonce=n%21",
            "?from=*&since=1",
            f"?from=*&nonce={'n' * 33}",
        ):
            assert client.get(f"/contract/signed{wrong}").status_code == 400, wrong
        assert client.post("/contract/signed").status_code == 405
        described = client.get("/openapi.json").json()
        (told,) = described["paths"]["/contract/signed"].values()
        assert {one["name"] for one in told["parameters"]} == {"from", "nonce"}
        answers = told["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        assert answers.rpartition("/")[2] in described["components"]["schemas"]
    provider.close()
    with calling(acme_app(acme_provider())) as client:
        assert client.get("/contract/signed?from=*&nonce=n").status_code == 404
        assert "/contract/signed" not in client.get("/openapi.json").json()["paths"]


@pytest.mark.spec("15.6")
@pytest.mark.parametrize(
    ("root", "root_path", "expected"),
    [
        (None, "", ""),
        (None, "/v1", "/v1"),
        (None, "/v1/", "/v1"),
        ("/v2", "", "/v2"),
        ("/v2/", "/v1", "/v2"),
        ("https://api.example/v1", "", "https://api.example/v1"),
    ],
)
def test_a_statement_tells_where_its_contract_lives(provide, root, root_path, expected):
    assert statement_of(provide(root=root), root_path=root_path).root == expected


@pytest.mark.spec("15.6")
@pytest.mark.parametrize(
    ("prefix", "path"), [("", "/contract"), ("/v1", "/contract"), ("/contract", "/contract")]
)
def test_where_the_endpoints_are_mounted_by_hand_is_not_where_the_contract_lives(provide, prefix, path):
    app = Starlette(routes=[Mount(path, app=contract_app(provide()))])
    if prefix:
        app = Starlette(routes=[Mount(prefix, app=app)])
    with calling(app) as client:
        signed = read_signed_statement(client.get(f"{prefix}{path}/signed?from=*&nonce=n").content)
    assert read_statement(signed.statement).root == prefix


def test_where_the_middleware_answers_it_is_the_root_of_the_app(provide):
    provider = provide()
    for app, prefix in (
        (openly(Starlette(), provider), ""),
        (Starlette(routes=[Mount("/v1", app=openly(Starlette(), provider))]), "/v1"),
    ):
        with calling(app) as client:
            signed = read_signed_statement(client.get(f"{prefix}/contract/signed?from=*&nonce=n").content)
        assert read_statement(signed.statement).root == prefix
