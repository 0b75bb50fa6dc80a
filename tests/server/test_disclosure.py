"""Aliases, and the face of a state that speaks in them."""

import gc
import hashlib
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import Suggestion
from shelflife.contract.cells import cells_of_rows, united
from shelflife.contract.compact import compacted, expanded
from shelflife.contract.messages import TableVersion
from shelflife.contract.names import check_name, check_version
from shelflife.contract.positions import Named
from shelflife.server import Disclosure, Registry, UsageError
from shelflife.server.faces import Face, face_of
from shelflife.server.tables import is_minted, minted_version
from shelflife.server.words import Words, short_name
from tests.cells import in_aliases
from tests.server.disclosing import (
    LEVEL,
    SECRET,
    TIE,
    meets,
    registry,
    seen_by_all,
    shown_by,
    told_at,
    versions_in,
)

ADA, BOB = {"authorization": "Bearer ada"}, {"authorization": "Bearer bob"}

names = st.text("abcXYZ019_.-", min_size=1, max_size=6)
keys = st.text(min_size=1, max_size=6)


@pytest.mark.parametrize("secret", ["", "fifteen letters", b"\0" * 15, 32, None])
def test_a_short_secret_is_refused(secret):
    with pytest.raises(UsageError, match="16 bytes"):
        Disclosure(secret=secret)


@pytest.mark.spec("14.1", "14.2")
@given(st.text(), names, names, keys)
def test_aliases_are_names_that_last_and_that_each_client_has_for_itself(client, table, other, key):
    aliases = Disclosure(secret=SECRET).aliases(client)
    again = Disclosure(secret=SECRET.encode()).aliases(client)
    strangers = [
        Disclosure(secret=SECRET + "!").aliases(client),
        Disclosure(secret=SECRET).aliases(client + "!"),
    ]

    def every(of, table):
        return [
            of.table(table),
            of.key(table, key),
            of.column(table, key),
            of.rule_id(f"{table}:r").partition(":")[2],
            of.version(table, minted_version(7)),
            of.log(hashlib.md5(key.encode()).hexdigest()),
            of.digest(hashlib.sha256(key.encode()).hexdigest()),
        ]

    for alias in every(aliases, table)[:4]:
        assert check_name(alias) == alias
        assert len(alias) == 16
    assert every(aliases, table) == every(again, table)
    told = [every(one, table) for one in (aliases, *strangers)]
    assert len({*itertools.chain(*told)}) == 3 * len(told[0])
    assert {aliases.policy(f"{table}{n}") for n in range(8)} != {
        strangers[1].policy(f"{table}{n}") for n in range(8)
    }
    for one, another in list(zip(every(aliases, table), every(aliases, other), strict=True))[:5]:
        assert (one == another) == (table == other)
    assert aliases.row(table) == aliases.table(table)
    assert aliases.row(f"{table}:{key}") == f"{aliases.table(table)}:{aliases.key(table, key)}"


@pytest.mark.spec("14.3")
def test_a_digest_is_another_for_each_client_and_a_given_version_is_as_it_was_given():
    one, other = (Disclosure(secret=SECRET).aliases(client) for client in "ab")
    minted = minted_version(7)
    digests = {aliases.version("t", minted) for aliases in (one, other)}
    assert len({*digests, minted}) == 3
    assert all(is_minted(check_version(version)) for version in digests)
    assert one.version("t", minted) != one.version("u", minted)
    for given_version in ("2026-10", "1.0.0-0badcafe", "~short"):
        assert one.version("t", given_version) == given_version
    fingerprints = {one.fingerprint("4f53cda18c2b"), other.fingerprint("4f53cda18c2b"), "4f53cda18c2b"}
    assert len(fingerprints) == 3
    assert {len(fingerprint) for fingerprint in fingerprints} == {12}


@pytest.mark.spec("14.3")
def test_the_short_name_of_a_policy_is_another_for_each_client():
    reg, disclosure = registry(), seen_by_all()
    faces = [face_of(reg.state, LEVEL), *(shown_by(reg, disclosure, client) for client in ("ada", "bob"))]
    short_names = {face.words.policy("code_fits POST /orders") for face in faces}
    assert len(short_names) == 3
    assert short_name("code_fits POST /orders") in short_names
    assert {len(name) for name in short_names} == {3}


SUGGESTION = Suggestion(
    type="T",
    parameters={"code": "SUMMER"},
    cache_hint="cacheable",
    table="more",
    tables=(
        TableVersion(table="codes", version="7"),
        TableVersion(table="promos", version=minted_version(7)),
        TableVersion(table="more", version="1"),
    ),
    rows=("codes:growth", "codes:scale", "codes:gone", "promos", "more"),
    cells={
        "codes": {"growth": ("code", "x", "y"), "scale": None, "gone": ()},
        "promos": {"": ()},
        "more": None,
    },
    rules=("codes:needs", "promos:back"),
    when={"plan": "growth"},
    unless={"code": ("SUMMER",)},
)


@pytest.mark.spec("14.1", "14.3")
def test_a_suggestion_is_told_in_aliases_but_for_what_the_fix_is_made_of():
    disclosure = seen_by_all()
    face, aliases = shown_by(registry(codes="7"), disclosure), disclosure.aliases("ada")
    shown = face.suggestion(SUGGESTION)
    codes, promos, more = (aliases.table(name) for name in ("codes", "promos", "more"))
    assert shown.table == more
    assert shown.tables == (
        TableVersion(table=codes, version="7"),
        TableVersion(table=promos, version=aliases.version("promos", minted_version(7))),
        TableVersion(table=more, version="1"),
    )
    keys = {key: aliases.key("codes", key) for key in ("growth", "scale", "gone")}
    assert shown.rows == (*(f"{codes}:{alias}" for alias in keys.values()), promos, more)
    columns = tuple(sorted(aliases.column("codes", column) for column in ("code", "x", "y")))
    assert shown.cells == {
        codes: {keys["growth"]: columns, keys["scale"]: None, keys["gone"]: ()},
        promos: {"": ()},
        more: None,
    }
    assert shown.cells == in_aliases(aliases, SUGGESTION.cells)
    assert list(shown.cells[codes]) == sorted(shown.cells[codes])
    assert shown.rules == (aliases.rule_id("codes:needs"), aliases.rule_id("promos:back"))
    for member in ("type", "parameters", "when", "unless", "cache_hint"):
        assert getattr(shown, member) == getattr(SUGGESTION, member)
    bare = Suggestion(type="T", parameters={}, cache_hint="recompute")
    assert face.suggestion(bare) == bare
    assert versions_in(face)[codes] == "7"


@pytest.mark.spec("14.1", "14.3")
def test_a_compact_suggestion_is_told_in_aliases_too():
    """Also where a key is a value of the request, for which the compact form has a shorter way to write it."""
    disclosure = seen_by_all()
    face, aliases = shown_by(registry(), disclosure), disclosure.aliases("ada")
    compact = compacted(face.suggestion(SUGGESTION), face.words.policy("code_fits"))
    assert compact.by[:3] == aliases.policy("code_fits")
    assert compact.on.keys() == {aliases.table(name) for name in ("codes", "promos", "more")}
    codes = compact.on[aliases.table("codes")]
    assert codes.keys() == {aliases.key("codes", key) for key in ("growth", "scale", "gone")} | {">"}
    assert codes[">"] == aliases.rule_id("codes:needs").partition(":")[2]
    assert compact.parameters == SUGGESTION.parameters
    told = expanded(compact, {"plan": "growth", "other": 1})
    assert told.cells == in_aliases(aliases, SUGGESTION.cells)
    assert told.rules == tuple(map(aliases.rule_id, SUGGESTION.rules))
    assert (told.when, told.unless) == (SUGGESTION.when, SUGGESTION.unless)


@pytest.mark.spec("14.1")
def test_no_order_tells_how_anything_was_declared():
    reg = Registry({f"t{number}": {} for number in range(9)})
    reg.declare_policies({f"p{number}": "1" for number in range(9)})
    firsts = {client: shown_by(reg, seen_by_all(), client) for client in "abc"}
    for number in range(9):
        keys = {f"k{key}": {f"c{column}": 1 for column in range(5)} for key in range(5)}
        reg.reload_table(f"t{number}", set=keys)
    middles = {client: shown_by(reg, seen_by_all(), client) for client in "abc"}
    for number in range(9):
        reg.reload_table(
            f"t{number}", set={f"k{key}": {f"c{column}": 2 for column in range(5)} for key in range(5)}
        )
    reg.declare_policies({f"p{number}": "2" for number in range(9)})
    for client in "abc":
        face = shown_by(reg, seen_by_all(), client)
        assert list(versions_in(face)) == sorted(versions_in(face))
        added = face.account(Named(firsts[client].position)).moved
        changed = face.account(Named(middles[client].position)).moved
        for moved in (added, changed):
            assert list(moved.tables) == sorted(moved.tables)
            assert list(moved.policies) == sorted(moved.policies)
            assert len(moved.tables) == 9
        for table in added.tables.values():
            assert list(table.added) == sorted(table.added)
        for table in changed.tables.values():
            assert list(table.changed) == sorted(table.changed) == list(table.columns)
            assert all(list(columns) == sorted(columns) for columns in table.columns.values())


@pytest.mark.spec("14.2")
def test_by_default_a_client_is_who_has_these_credentials():
    reg, faces = registry(), Disclosure(secret=SECRET)

    def tables(**headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return frozenset(versions_in(faces.face(reg.state, LEVEL, headers)))

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


@pytest.mark.spec("14.1", "14.5")
def test_what_is_no_alias_of_the_client_is_not_known():
    reg, disclosure = registry(codes="1"), seen_by_all()
    aliases = disclosure.aliases("ada")
    first = shown_by(reg, disclosure)
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}}, version="2")
    face = shown_by(reg, disclosure)
    others = disclosure.aliases("bob").table("codes")
    table = aliases.table("codes")
    told = face.changes_since({"codes": "1", "nonsense": "1", others: "1", table: "1"}, None).tables
    assert told["codes"] == told["nonsense"] == told[others]
    assert (told["codes"].known, told["codes"].version) == (False, None)
    assert told[table].known
    elsewhere = in_aliases(aliases, cells_of_rows(["codes:scale", "codes:missing"]))
    assert meets(face, first, elsewhere)
    moved = in_aliases(aliases, {"codes": {"growth": ("code",)}})
    nonsense = map(cells_of_rows, (["codes:scale"], ["codes"], ["nonsense"], [f"{others}:x"]))
    for cells in (moved, {table: None}, *nonsense):
        assert not meets(face, first, united([elsewhere, cells]))
    unknown = {table: {aliases.key("codes", "growth"): ("code",), "growth": None}}
    assert meets(face, first, united([elsewhere, unknown]))


@pytest.mark.spec("14.1", "14.5")
def test_a_version_is_known_in_the_words_of_the_client_alone():
    reg, disclosure = registry(), seen_by_all()
    aliases, minted = disclosure.aliases("ada"), reg.state.tables["codes"].version
    reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    face, table = shown_by(reg, disclosure), aliases.table("codes")

    def told(since):
        return face.changes_since({table: since}, None).tables[table]

    assert told(aliases.version("codes", minted)).changed == (aliases.key("codes", "growth"),)
    for stranger in (minted, disclosure.aliases("bob").version("codes", minted), "nonsense"):
        assert not told(stranger).known
        assert told(stranger).version == aliases.version("codes", reg.state.tables["codes"].version)


@pytest.mark.spec("14.1", "14.5")
def test_rules_are_told_and_asked_about_in_aliases():
    reg, disclosure = registry(), seen_by_all()
    aliases = disclosure.aliases("ada")
    first = shown_by(reg, disclosure)
    fingerprint, plain = first.versions.rules_version, reg.state.rules.version
    reg.reload_rules([])
    face = shown_by(reg, disclosure)
    told = face.changes_since({}, fingerprint).rules
    assert (told.known, told.since, told.added) == (True, fingerprint, ())
    assert told.removed == (aliases.rule(TIE),)
    assert told.removed[0].id == aliases.rule_id("codes:needs")
    assert told.removed[0].via == aliases.column("codes", "code")
    assert told.version == face.versions.rules_version != reg.state.rules.version
    for stranger in (plain, disclosure.aliases("bob").fingerprint(plain)):
        assert not face.changes_since({}, stranger).rules.known
    assert not meets(face, first, {}, [aliases.rule_id("codes:needs")])
    for other in (aliases.rule_id("codes:other"), "codes:needs"):
        assert meets(face, first, {}, [other])


@pytest.mark.spec("14.6", "14.7")
def test_who_does_not_see_diffs_is_told_how_many():
    reg = registry(codes="1", promos="1")
    faces = Disclosure(secret=SECRET)
    codes = versions_in(faces.face(reg.state, LEVEL, ADA)).keys()
    first = faces.face(reg.state, LEVEL, ADA)
    reg.reload_table("codes", {"growth": {"code": "WINTER"}, "new": {}, "newer": {}}, version="2")
    reg.reload_table("promos", set={}, version="2")
    reg.reload_rules([])
    face = faces.face(reg.state, LEVEL, ADA)
    told = face.changes_since(dict.fromkeys(codes, "1"), first.versions.rules_version)
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
        "since": first.versions.rules_version,
        "version": face.versions.rules_version,
        "known": False,
        "counts": {"added": 0, "removed": 1},
    }
    unchanged = face.changes_since({}, face.versions.rules_version).rules
    assert (unchanged.known, unchanged.added, unchanged.removed) == (True, (), ())
    too_old = face.changes_since(dict.fromkeys(codes, "0"), "0")
    assert not any(one.known or one.counts for one in (*too_old.tables.values(), too_old.rules))


def test_a_face_is_made_once_for_a_client_and_a_state():
    reg, faces = registry(), Disclosure(secret=SECRET)
    face = faces.face(reg.state, LEVEL, ADA)
    assert faces.face(reg.state, LEVEL, BOB) is not face
    assert faces.face(reg.state, LEVEL, ADA) is face
    reg.reload_table("codes", set={"growth": {}})
    assert faces.face(reg.state, LEVEL, ADA) is not face


def test_who_may_see_diffs_is_asked_each_time():
    reg, trusted = registry(codes="1"), set()
    disclosure = Disclosure(secret=SECRET, client=lambda headers: "ada", sees_diffs=trusted.__contains__)
    first = disclosure.face(reg.state, LEVEL, {})
    reg.reload_table("codes", set={"growth": {}}, version="2")
    asked = {disclosure.aliases("ada").table("codes"): "1"}

    def is_told():
        face = disclosure.face(reg.state, LEVEL, {})
        [told] = face.changes_since(asked, None).tables.values()
        [moved] = told_at(face, Named(first.position)).moved.tables.values()
        assert moved.known is told.known
        return told.known

    before = is_told()
    trusted.add("ada")
    assert (before, is_told()) == (False, True)


def face_count():
    gc.collect()
    return sum(issubclass(type(thing), Face) and type(thing.words) is not Words for thing in gc.get_objects())


def test_only_so_many_faces_are_kept_and_none_of_a_state_that_has_passed():
    most = 1024
    before = face_count()
    reg, faces = registry(), Disclosure(secret=SECRET)
    for number in range(3 * most + 1):
        faces.face(reg.state, LEVEL, {"authorization": str(number)})
    assert 1 <= face_count() - before <= most
    reg.reload_table("codes", set={"growth": {}})
    faces.face(reg.state, LEVEL, ADA)
    assert face_count() - before == 1
