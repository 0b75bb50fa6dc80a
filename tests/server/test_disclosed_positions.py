"""Positions with a disclosure: each client has its own, and is told in its aliases what has moved."""

import hashlib
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.client.trust import attestation
from shelflife.contract import Rule
from shelflife.contract.messages import Counts
from shelflife.contract.positions import Account, Moved, MovedRules, MovedTable, Named, Position
from shelflife.contract.preconditions import Precondition
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Disclosure, Provider, Signing, UsageError, fix
from shelflife.server.endpoints import ContractEndpoints, EndpointCall
from shelflife.server.faces import face_of
from shelflife.server.log import MOST_ENTRIES, check_over
from shelflife.server.wire import Level
from tests.cells import in_aliases
from tests.server.disclosing import (
    LEVEL,
    PRINTS,
    SECRET,
    TIE,
    meets,
    registry,
    seen_by_all,
    seen_by_nobody,
    shown_by,
    told_at,
)


@pytest.mark.spec("14.1", "14.4")
def test_what_has_moved_from_a_position_is_told_in_aliases():
    reg, disclosure = registry(), seen_by_all()
    reg.declare_policies(PRINTS)
    first, aliases = shown_by(reg, disclosure), disclosure.aliases("ada")
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {}}, remove=["scale"])
    reg.reload_rules([])
    reg.declare_policies(PRINTS | {"plan_is_open": "2"})
    now = shown_by(reg, disclosure)
    growth = aliases.key("codes", "growth")
    told = told_at(now, Named(first.position, "mark", "nonce"))
    assert (told.to, told.since, told.nonce) == (str(now.position), f"{first.position}:mark", "nonce")
    assert told.moved.tables == {
        aliases.table("codes"): MovedTable(
            added=(aliases.key("codes", "new"),),
            removed=(aliases.key("codes", "scale"),),
            changed=(growth,),
            columns={growth: (aliases.column("codes", "code"),)},
            affected_downstream=(aliases.row("promos:SUMMER"),),
        )
    }
    assert told.moved.rules == MovedRules(removed=(aliases.rule(TIE),))
    assert told.moved.policies == (aliases.policy("plan_is_open"),)
    assert told_at(now, Named(now.position)) == Account(to=str(now.position))


@pytest.mark.spec("14.4")
def test_two_clients_are_shown_different_positions_for_the_same_state():
    reg, disclosure = registry(), seen_by_all()
    faces = [shown_by(reg, disclosure, client) for client in ("ada", "bob")]
    faces += [face_of(reg.state, LEVEL), shown_by(reg, seen_by_all(SECRET + "!"))]
    assert {face.position.number for face in faces} == {reg.state.number}
    for shown in ("position", "log_id", "digest", "tag"):
        assert len({getattr(face, shown) for face in faces}) == len(faces)


@pytest.mark.spec("14.4")
def test_what_a_client_is_shown_of_the_log_says_nothing_to_who_guesses_what_is_in_it():
    """A signed statement names the log. With that name, check and digest must not be those over its content."""
    reg = registry()
    face, state = shown_by(reg, seen_by_all()), reg.state
    for log in (face.log_id, state.log_id):
        assert check_over(log, state.digest) != face.position.check
        assert hashlib.sha256(f"{log} {state.digest}".encode()).hexdigest() != face.digest
    assert check_over(state.log_id, state.digest) == face_of(state, LEVEL).position.check


changes = st.lists(
    st.one_of(
        st.tuples(st.just("growth"), st.integers(0, 2)),
        st.tuples(st.just("new"), st.integers(0, 2)),
        st.sampled_from(["rules", "policies", "bump"]),
    ),
    min_size=1,
    max_size=6,
)


def carry_out(reg, change):
    match change:
        case "rules":
            reg.reload_rules([] if [*reg.state.rules] else [TIE])
        case "policies":
            reg.declare_policies(PRINTS if reg.state.policies != PRINTS else {})
        case "bump":
            reg.reload_table("promos", set={}, version=f"bump {reg.state.number}")
        case (key, number):
            reg.reload_table("codes", set={key: {"code": number}})


@pytest.mark.spec("14.4", "14.5")
@given(changes, st.booleans())
def test_a_position_of_one_client_is_never_taken_for_one_of_another(history, sees_diffs):
    reg, disclosure = registry(), seen_by_all() if sees_diffs else seen_by_nobody()
    seen = []
    for change in (None, *history):
        if change is not None:
            carry_out(reg, change)
        faces = {client: shown_by(reg, disclosure, client) for client in ("ada", "bob")}
        seen.append({**faces, "the server": face_of(reg.state, LEVEL)})
    for client, stranger in (("ada", "bob"), ("bob", "ada"), ("ada", "the server")):
        for now in seen:
            face = now[client]
            for one in seen:
                position, is_ahead = (
                    one[stranger].position,
                    one[client].position.number > face.position.number,
                )
                told = face.account(Named(position, "m", "n"))
                assert told == Account(
                    to=str(face.position),
                    since=f"{position}:m",
                    unknown="ahead" if is_ahead else "foreign",
                    nonce="n",
                )
                assert told_at(face, Named(position)).unknown == told.unknown
                assert not face.meets(Precondition(at=str(position), cells={}, rules=(), policies=()))
                assert not face.meets(Precondition(at=str(position)))
                own = face.account(Named(one[client].position, "m"))
                assert own.unknown == ("ahead" if is_ahead else msgspec.UNSET)


@pytest.mark.spec("14.5")
def test_a_position_that_is_no_longer_kept_is_old_whoever_was_shown_it():
    reg, disclosure = registry(), seen_by_all()
    firsts = [shown_by(reg, disclosure, client) for client in ("ada", "bob")]
    for number in range(MOST_ENTRIES + 1):
        reg.reload_table("codes", set={"growth": {"code": number}})
    face = shown_by(reg, disclosure)
    assert [face.account(Named(first.position)).unknown for first in firsts] == ["old", "old"]
    assert not any(meets(face, first, {}) for first in firsts)


@pytest.mark.spec("14.6", "14.7")
def test_an_account_counts_too():
    reg, disclosure = registry(codes="1", promos="1"), seen_by_nobody()
    aliases, first = disclosure.aliases("ada"), shown_by(reg, disclosure)
    reg.declare_policies(PRINTS)
    before = shown_by(reg, disclosure)
    reg.reload_table("codes", {"growth": {"code": "WINTER"}}, version="2")
    reg.reload_table("promos", set={}, version="2")
    reg.reload_rules([])
    reg.declare_policies({})
    face = shown_by(reg, disclosure)
    moved = msgspec.to_builtins(told_at(face, Named(before.position)).moved)
    assert moved == {
        "tables": {
            aliases.table("codes"): {
                "known": False,
                "counts": {"added": 0, "removed": 1, "changed": 1},
            },
            aliases.table("promos"): {},
        },
        "rules": {"known": False, "counts": {"added": 0, "removed": 1}},
        "policies": tuple(sorted(map(aliases.policy, PRINTS))),
    }
    del moved["policies"]
    assert msgspec.to_builtins(told_at(face, Named(first.position)).moved) == moved


@pytest.mark.spec("14.7")
def test_what_was_changed_and_changed_back_does_not_count():
    reg, disclosure = registry(), seen_by_nobody()
    first = shown_by(reg, disclosure)
    for code in ("WINTER", "SUMMER"):
        reg.reload_table("codes", set={"growth": {"code": code}})
    for rules in ([], [TIE]):
        reg.reload_rules(rules)
    told = shown_by(reg, disclosure).account(Named(first.position)).moved
    assert told == Moved()


@pytest.mark.spec("14.8")
@pytest.mark.parametrize("disclosure", [seen_by_all(), seen_by_nobody()])
def test_a_precondition_is_judged_by_cells_also_for_who_does_not_see_diffs(disclosure):
    reg = registry()
    reg.declare_policies(PRINTS)
    aliases = disclosure.aliases("ada")
    first = shown_by(reg, disclosure)
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    reg.declare_policies(PRINTS | {"code_fits": "2"})
    face = shown_by(reg, disclosure)
    assert not meets(face, first, in_aliases(aliases, {"codes": {"growth": ("code",)}}))
    assert meets(face, first, in_aliases(aliases, {"codes": {"growth": ("other",)}}))
    elsewhere = in_aliases(aliases, {"codes": {"scale": None}})
    assert meets(face, first, elsewhere, [aliases.rule_id("codes:needs")], [aliases.policy("plan_is_open")])
    assert not meets(face, first, elsewhere, [], [aliases.policy("code_fits")])
    assert not meets(face, first)
    assert meets(face, face)


@pytest.mark.spec("14.8")
@pytest.mark.parametrize("level", [Level.STAMPS, Level.VECTORS, Level.GRAPH, Level.FINGERPRINT])
def test_a_precondition_is_judged_by_rules_at_every_level(level):
    """Below Level 6 a client is not told that a rule has moved. What rests on it is stale all the same."""
    reg, disclosure = registry(), seen_by_all()
    aliases = disclosure.aliases("ada")
    firsts = shown_by(reg, disclosure, level=level), face_of(reg.state, level)
    reg.reload_rules([])
    faces = shown_by(reg, disclosure, level=level), face_of(reg.state, level)
    for first, face, followed in zip(firsts, faces, [aliases.rule_id("codes:needs"), TIE.id], strict=True):
        assert not meets(face, first, {}, [followed])
        assert not face.meets(Precondition(at=str(first.position), cells={}, policies=()))
        assert meets(face, first, {}, ["codes:other"])
        moved = face.account(Named(first.position)).moved
        assert (moved.rules is not None) is (level is Level.FINGERPRINT)


class Following:
    """Clients with pinned keys that ask a provider, over its restarts, what has moved."""

    def __init__(self, path, *, sees_diffs):
        self.path = path
        self.key = SigningKey.new()
        self.disclosure = Disclosure(
            secret=SECRET,
            client=lambda headers: headers["authorization"],
            sees_diffs=lambda client: sees_diffs,
        )
        self.held = {}

    def provide(self, tables, number):
        provider = Provider(
            tables, log=self.path, signing=Signing(signer=self.key), disclosure=self.disclosure
        )

        @provider.policy
        def secret_policy(request, tables):
            return fix("F", x=number)

        provider.be_ready()
        return provider

    def follow(self, provider, client):
        """What a client is told, and believes."""
        before = self.held.get(client)
        named = Named(before and Position.from_text(before.at), "m", "nonce")
        call = EndpointCall(
            "GET", "/contract/signed", f"from={named.base}&nonce=nonce", {"authorization": client}
        )
        answer = ContractEndpoints(provider, str).answer(call).body
        secrets = (b"secret_", b"hidden_", b"gone_away", provider.state.log_id.encode())
        assert not any(secret in answer for secret in secrets)
        pinned = trust({"https://api.example": [self.key.key]})
        found = attestation(answer, named, before, pinned, "https://api.example:443", time.time())
        self.held[client] = found.vouched
        assert found.account.to == str(provider.face(provider.state, {"authorization": client}).position)
        assert found.account.unknown is msgspec.UNSET
        return found.account.moved


@pytest.mark.spec("14.1", "14.4", "14.11")
@pytest.mark.parametrize("sees_diffs", [True, False])
def test_each_client_is_shown_signed_statements_in_its_own_words(tmp_path, sees_diffs):
    """Two clients with pinned keys follow a server over a restart, with one table less and another policy."""
    tables = {"secret_codes": {"hidden_0": {"n": 0}, "hidden_1": {"n": 0}}, "gone_away": {}}
    tie = Rule(from_table="secret_codes", to_table="secret_codes", relation="secret_needs")
    both = Following(tmp_path / "log.db", sees_diffs=sees_diffs)
    provider = both.provide(tables, 1)
    assert both.follow(provider, "ada") is msgspec.UNSET
    provider.registry.reload_table("secret_codes", set={"hidden_0": {"n": 1}})
    assert both.follow(provider, "ben") is msgspec.UNSET
    provider.registry.reload_rules([tie])
    moved, aliases = both.follow(provider, "ada"), both.disclosure.aliases("ada")
    assert moved.tables == {
        aliases.table("secret_codes"): MovedTable(
            changed=(aliases.key("secret_codes", "hidden_0"),),
            columns={aliases.key("secret_codes", "hidden_0"): (aliases.column("secret_codes", "n"),)},
        )
        if sees_diffs
        else MovedTable(known=False, counts=Counts(added=0, removed=0, changed=1))
    }
    assert moved.rules == (
        MovedRules(added=(aliases.rule(tie),))
        if sees_diffs
        else MovedRules(known=False, counts=Counts(added=1, removed=0))
    )
    moved = both.follow(provider, "ben")
    assert (moved.tables, moved.rules.known) == ({}, sees_diffs)
    [policy] = provider.state.policies
    provider.close()

    provider = both.provide({"secret_codes": tables["secret_codes"]}, 2)
    moved = {client: both.follow(provider, client) for client in ("ada", "ben")}
    assert {client: one.policies for client, one in moved.items()} == {
        client: (both.disclosure.aliases(client).policy(policy),) for client in ("ada", "ben")
    }
    ada, ben = (both.held[client] for client in ("ada", "ben"))
    assert Position.from_text(ada.at).number == Position.from_text(ben.at).number == provider.state.number
    assert ada.at != ben.at
    assert ada.digest != ben.digest
    assert ada.log != ben.log
    provider.close()


def test_to_sign_clients_must_keep_their_names(tmp_path):
    options = {"log": tmp_path / "log.db", "signing": Signing(signer=SigningKey.new())}
    with pytest.raises(UsageError, match="a disclosure needs client="):
        Provider({}, disclosure=Disclosure(secret=SECRET), **options)
    Provider({}, disclosure=Disclosure(secret=SECRET, client=str), **options).close()
