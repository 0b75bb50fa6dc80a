"""Aliases, and the face of a state that speaks in them."""

import gc
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.client.trust import attestation
from shelflife.contract import Rule, Suggestion
from shelflife.contract.compact import Moved, changes_of
from shelflife.contract.messages import TableVersion
from shelflife.contract.names import check_name, check_version
from shelflife.contract.versions import Versions
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Disclosure, Provider, Registry, Signing, UsageError
from shelflife.server.disclosure import ClientFaces
from shelflife.server.state import Face
from shelflife.server.wire import Level

SECRET = "a secret of the provider"
TIE = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
ADA, BOB = {"authorization": "Bearer ada"}, {"authorization": "Bearer bob"}
LEVEL = Level.FINGERPRINT

names = st.text("abcXYZ019_.-", min_size=1, max_size=6)
keys = st.text(min_size=1, max_size=6)


def registry(**versions):
    content = {"codes": {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}, "promos": {"SUMMER": {}}}
    return Registry(content, [TIE], versions=versions)


def seen_by_all(secret=SECRET):
    return Disclosure(secret=secret, client=lambda headers: headers["client"], sees_diffs=lambda client: True)


def face_of(reg, disclosure, client="ada"):
    return ClientFaces(disclosure, LEVEL).face(reg.state, {"client": client})


def versions_in(face):
    return face.stamp.message.table_versions


@pytest.mark.parametrize("secret", ["", "fifteen letters", b"\0" * 15, 32, None])
def test_a_short_secret_is_refused(secret):
    with pytest.raises(UsageError, match="16 bytes"):
        Disclosure(secret=secret)


@pytest.mark.spec("14.11")
@pytest.mark.parametrize("sees_diffs", [True, False])
def test_each_client_is_shown_signed_states_in_its_own_words(tmp_path, sees_diffs):
    """Two clients with pinned keys follow a server that names nothing to them, over a restart without one of its tables."""
    key = SigningKey.new()
    tables = {"secret_codes": {"hidden_0": {"n": 0}, "hidden_1": {"n": 0}}, "gone_away": {}}
    tie = Rule(from_table="secret_codes", to_table="secret_codes", relation="secret_needs")

    def provide(tables):
        disclosure = Disclosure(
            secret=SECRET,
            client=lambda headers: headers["authorization"],
            sees_diffs=lambda client: sees_diffs,
        )
        return Provider(
            tables, state_file=tmp_path / "state.db", signing=Signing(signer=key), disclosure=disclosure
        )

    held = {}
    versions = {}

    def follow(provider, client):
        face = provider.face(provider.registry.state, {"authorization": client})
        before = held.get(client)
        answer = msgspec.json.encode(provider.lineage.answer(before and before.sequence, face))
        assert not any(name in answer for name in (b"secret_", b"hidden_", b"gone_away"))
        pinned = trust({"https://api.example": [key.key]})
        known = versions.get(client, Versions({}, None))
        found = attestation(answer, before, known, pinned, "https://api.example:443", time.time())
        held[client], versions[client] = found.vouched, found.versions
        assert found.versions == Versions(face.stamp.message.table_versions, face.stamp.message.rules_version)
        return found.changes

    provider = provide(tables)
    follow(provider, "ada")
    provider.registry.reload_table("secret_codes", set={"hidden_0": {"n": 1}})
    follow(provider, "ben")
    provider.registry.reload_rules([tie])
    changes = follow(provider, "ada")
    aliases = provider.disclosure.aliases("ada")
    told = changes[aliases.table("secret_codes")]
    assert told.known is sees_diffs
    assert (told.changed == (aliases.key("secret_codes", "hidden_0"),)) is sees_diffs
    assert changes[":rules"].known is sees_diffs
    assert follow(provider, "ben") is not None
    provider.close()
    provider = provide({"secret_codes": tables["secret_codes"]})
    follow(provider, "ada")
    follow(provider, "ben")
    assert held["ada"].sequence == held["ben"].sequence == 4
    assert held["ada"].digest != held["ben"].digest
    assert held["ada"].lineage != held["ben"].lineage
    provider.close()


def test_to_sign_clients_must_keep_their_names(tmp_path):
    options = {"state_file": tmp_path / "state.db", "signing": Signing(signer=SigningKey.new())}
    with pytest.raises(UsageError, match="a disclosure needs client="):
        Provider({}, disclosure=Disclosure(secret=SECRET), **options)
    Provider({}, disclosure=Disclosure(secret=SECRET, client=str), **options).close()


@pytest.mark.spec("14.1", "14.2")
@given(st.text(), names, names, keys)
def test_aliases_are_names_that_last_and_that_each_client_has_for_itself(client, table, other, key):
    aliases = Disclosure(secret=SECRET).aliases(client)
    for alias in (aliases.table(table), aliases.key(table, key), aliases.rule_id(f"{table}:r")[17:]):
        assert check_name(alias) == alias
        assert len(alias) == 16
    assert aliases.table(table) == Disclosure(secret=SECRET.encode()).aliases(client).table(table)
    assert aliases.table(table) != Disclosure(secret=SECRET + "!").aliases(client).table(table)
    assert aliases.table(table) != Disclosure(secret=SECRET).aliases(client + "!").table(table)
    assert (aliases.table(table) == aliases.table(other)) == (table == other)
    assert (aliases.key(table, key) == aliases.key(other, key)) == (table == other)
    assert aliases.row(table) == aliases.table(table)
    assert aliases.row(f"{table}:{key}") == f"{aliases.table(table)}:{aliases.key(table, key)}"


@pytest.mark.spec("14.3")
def test_a_digest_is_another_for_each_client_and_a_given_version_is_as_it_was_given():
    one, other = (Disclosure(secret=SECRET).aliases(client) for client in "ab")
    digests = {aliases.version("t", "1.0.3-9f3c21ab") for aliases in (one, other)}
    assert len({*digests, "1.0.3-9f3c21ab"}) == 3
    assert all(check_version(version).startswith("1.0.3-") for version in digests)
    assert one.version("t", "1.0.3-9f3c21ab") != one.version("u", "1.0.3-9f3c21ab")
    assert one.version("t", "2026-10") == "2026-10"
    fingerprints = {one.fingerprint("4f53cda18c2b"), other.fingerprint("4f53cda18c2b"), "4f53cda18c2b"}
    assert len(fingerprints) == 3
    assert {len(fingerprint) for fingerprint in fingerprints} == {12}


@pytest.mark.spec("14.1", "14.3")
def test_a_suggestion_is_told_in_aliases_but_for_what_the_fix_is_made_of():
    reg = registry(codes="7")
    disclosure = seen_by_all()
    face, aliases = face_of(reg, disclosure), disclosure.aliases("ada")
    suggestion = Suggestion(
        type="T",
        parameters={"code": "SUMMER"},
        cache_hint="cacheable",
        table="codes",
        tables=(TableVersion(table="codes", version="7"),),
        rows=("codes:growth", "promos"),
        rules=("codes:needs",),
        when={"plan": "growth"},
        unless={"code": ("SUMMER",)},
    )
    shown = face.suggestion(suggestion)
    assert shown.table == aliases.table("codes")
    assert shown.tables == (TableVersion(table=shown.table, version="7"),)
    assert shown.rows == (f"{shown.table}:{aliases.key('codes', 'growth')}", aliases.table("promos"))
    assert shown.rules == (aliases.rule_id("codes:needs"),)
    for member in ("type", "parameters", "when", "unless", "cache_hint"):
        assert getattr(shown, member) == getattr(suggestion, member)
    bare = Suggestion(type="T", parameters={}, cache_hint="recompute")
    assert face.suggestion(bare) == bare
    assert versions_in(face)[shown.table] == "7"


def test_the_order_of_tables_does_not_tell_how_they_were_declared():
    reg = Registry({f"t{number}": {} for number in range(9)})
    for client in "abc":
        aliases = list(versions_in(face_of(reg, seen_by_all(), client)))
        assert aliases == sorted(aliases)


@pytest.mark.spec("14.2")
def test_by_default_a_client_is_who_has_these_credentials():
    reg, faces = registry(), ClientFaces(Disclosure(secret=SECRET), LEVEL)

    def tables(**headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return frozenset(versions_in(faces.face(reg.state, headers)))

    anonymous = tables()
    assert tables(accept="*/*") == anonymous
    assert tables(authorization="Bearer ada", accept="*/*") == tables(authorization="Bearer ada")
    told_apart = {
        anonymous,
        tables(authorization="Bearer ada"),
        tables(authorization="Bearer bob"),
        tables(x_api_key="Bearer ada"),
    }
    assert len(told_apart) == 4
    assert len(frozenset.union(*told_apart)) == 8


@pytest.mark.spec("14.4")
def test_both_sides_work_the_epoch_out_from_what_the_client_is_shown():
    reg, disclosure = registry(), seen_by_all()
    first = face_of(reg, disclosure)
    assert first.epoch == Versions(versions_in(first), first.stamp.message.rules_version).epoch
    assert first.epoch != reg.state.face(LEVEL).epoch != face_of(reg, disclosure, "bob").epoch
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    now = face_of(reg, disclosure)
    assert now.compact_stamp(now.epoch).members == b'"epoch":1'
    aliases = disclosure.aliases("ada")
    moved = msgspec.json.decode(b"{" + now.compact_stamp(first.epoch).members + b"}")["epoch"]
    told = changes_of(
        Versions(versions_in(first), first.stamp.message.rules_version), msgspec.convert(moved, Moved)
    )
    assert told.table_versions == versions_in(now)
    assert told.tables[aliases.table("codes")].changed == (aliases.key("codes", "growth"),)
    assert told.tables[aliases.table("codes")].affected_downstream == (aliases.row("promos:SUMMER"),)
    assert face_of(reg, disclosure, "bob").compact_stamp(first.epoch) is None
    assert now.compact_stamp(reg.state.face(LEVEL).epoch) is None


@pytest.mark.spec("14.1", "14.5")
def test_what_is_no_alias_of_the_client_is_not_known():
    reg, disclosure = registry(codes="1"), seen_by_all()
    aliases = disclosure.aliases("ada")
    first = face_of(reg, disclosure)
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}}, version="2")
    face = face_of(reg, disclosure)
    others = disclosure.aliases("bob").table("codes")
    table = aliases.table("codes")
    told = face.changes_since({"codes": "1", "nonsense": "1", others: "1", table: "1"}, None).tables
    assert told["codes"] == told["nonsense"] == told[others]
    assert (told["codes"].known, told["codes"].version) == (False, None)
    assert told[table].known
    elsewhere = aliases.row("codes:scale")
    assert not face.has_moved(first.epoch, [elsewhere, aliases.row("codes:missing")], [])
    for moved in (aliases.row("codes:growth"), table, "codes:scale", "codes", "nonsense", f"{others}:x"):
        assert face.has_moved(first.epoch, [elsewhere, moved], [])


@pytest.mark.spec("14.1", "14.5")
def test_rules_are_told_and_asked_about_in_aliases():
    reg, disclosure = registry(), seen_by_all()
    aliases = disclosure.aliases("ada")
    first = face_of(reg, disclosure)
    fingerprint, plain = first.stamp.message.rules_version, reg.state.rules.version
    reg.reload_rules([])
    face = face_of(reg, disclosure)
    told = face.changes_since({}, fingerprint).rules
    assert (told.known, told.since, told.added) == (True, fingerprint, ())
    assert told.removed == (aliases.rule(TIE),)
    assert told.removed[0].id == aliases.rule_id("codes:needs")
    assert told.version == face.stamp.message.rules_version != reg.state.rules.version
    assert not face.changes_since({}, plain).rules.known
    assert face.has_moved(first.epoch, [], [aliases.rule_id("codes:needs")])
    assert not face.has_moved(first.epoch, [], [aliases.rule_id("codes:other")])


@pytest.mark.spec("14.6", "14.7")
def test_who_does_not_see_diffs_is_told_how_many():
    reg = registry(codes="1", promos="1")
    faces = ClientFaces(Disclosure(secret=SECRET), LEVEL)
    codes = versions_in(faces.face(reg.state, ADA)).keys()
    first = faces.face(reg.state, ADA)
    reg.reload_table("codes", {"growth": {"code": "WINTER"}, "new": {}, "newer": {}}, version="2")
    reg.reload_table("promos", set={}, version="2")
    reg.reload_rules([])
    face = faces.face(reg.state, ADA)
    told = face.changes_since(dict.fromkeys(codes, "1"), first.stamp.message.rules_version)
    same, other = sorted(msgspec.to_builtins(told)["tables"].values(), key=len, reverse=True)
    assert other == {
        "since": "1",
        "version": "2",
        "known": False,
        "counts": {"added": 2, "removed": 1, "changed": 1},
    }
    assert same == {
        "since": "1",
        "version": "2",
        "known": True,
        "added": (),
        "removed": (),
        "changed": (),
        "affected_downstream": (),
    }
    assert msgspec.to_builtins(told.rules) == {
        "since": first.stamp.message.rules_version,
        "version": face.stamp.message.rules_version,
        "known": False,
        "counts": {"added": 0, "removed": 1},
    }
    unchanged = face.changes_since({}, face.stamp.message.rules_version).rules
    assert (unchanged.known, unchanged.added, unchanged.removed) == (True, (), ())
    too_old = face.changes_since(dict.fromkeys(codes, "0"), "0")
    assert not any(one.known or one.counts for one in (*too_old.tables.values(), too_old.rules))


@pytest.mark.spec("14.6", "14.7")
def test_the_compact_form_counts_too():
    reg = registry(codes="1", promos="1")
    faces = ClientFaces(Disclosure(secret=SECRET), LEVEL)
    first = faces.face(reg.state, ADA)
    reg.reload_table("codes", {"growth": {"code": "WINTER"}}, version="2")
    reg.reload_table("promos", set={}, version="2")
    reg.reload_rules([])
    face = faces.face(reg.state, ADA)
    moved = msgspec.json.decode(b"{" + face.compact_stamp(first.epoch).members + b"}")["epoch"]
    assert sorted(moved["tables"].values(), key=len) == [
        {"version": "2"},
        {"version": "2", "known": False, "counts": {"added": 0, "removed": 1, "changed": 1}},
    ]
    fingerprint = face.stamp.message.rules_version
    assert moved["rules"] == {
        "version": fingerprint,
        "known": False,
        "counts": {"added": 0, "removed": 1},
    }
    asked = face.changes_since(versions_in(first), first.stamp.message.rules_version)
    known = Versions(versions_in(first), first.stamp.message.rules_version)
    assert changes_of(known, msgspec.convert(moved, Moved)).rules == asked.rules


@pytest.mark.spec("14.8")
def test_a_precondition_is_judged_by_row_also_for_who_does_not_see_diffs():
    reg = registry()
    disclosure = Disclosure(secret=SECRET, client=lambda headers: "ada")
    faces = ClientFaces(disclosure, LEVEL)
    aliases = disclosure.aliases("ada")
    first = faces.face(reg.state, {})
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    face = faces.face(reg.state, {})
    assert face.has_moved(first.epoch, [aliases.row("codes:growth")], [])
    assert not face.has_moved(first.epoch, [aliases.row("codes:scale")], [aliases.rule_id("codes:needs")])


def test_a_face_is_made_once_for_a_client_and_a_state():
    reg, faces = registry(), ClientFaces(Disclosure(secret=SECRET), LEVEL)
    face = faces.face(reg.state, ADA)
    assert faces.face(reg.state, BOB) is not face
    assert faces.face(reg.state, ADA) is face
    reg.reload_table("codes", set={"growth": {}})
    assert faces.face(reg.state, ADA) is not face


def test_who_may_see_diffs_is_asked_each_time():
    reg, trusted = registry(codes="1"), set()
    disclosure = Disclosure(secret=SECRET, client=lambda headers: "ada", sees_diffs=trusted.__contains__)
    faces = ClientFaces(disclosure, LEVEL)
    reg.reload_table("codes", set={"growth": {}}, version="2")
    asked = {disclosure.aliases("ada").table("codes"): "1"}

    def is_told():
        [told] = faces.face(reg.state, {}).changes_since(asked, None).tables.values()
        return told.known

    before = is_told()
    trusted.add("ada")
    assert (before, is_told()) == (False, True)


def face_count():
    gc.collect()
    return sum(isinstance(thing, Face) and type(thing) is not Face for thing in gc.get_objects())


def test_only_so_many_faces_are_kept_and_none_of_a_state_that_has_passed():
    most = 1024
    before = face_count()
    reg, faces = registry(), ClientFaces(Disclosure(secret=SECRET), LEVEL)
    for number in range(3 * most + 1):
        faces.face(reg.state, {"authorization": str(number)})
    assert 1 <= face_count() - before <= most
    reg.reload_table("codes", set={"growth": {}})
    faces.face(reg.state, ADA)
    assert face_count() - before == 1
