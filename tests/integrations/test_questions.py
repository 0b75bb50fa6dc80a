"""What clients ask of the contract over HTTP: at which versions it is, and what has moved."""

import pytest

from shelflife.server import Provider, WireFormat
from tests.calling import ADMIN, calling
from tests.integrations.small_contract import app_of, contract, reload


@pytest.fixture
def client():
    with calling(app_of(contract()), headers=ADMIN) as client:
        yield client


@pytest.mark.spec("9.1")
def test_the_state_is_answered_with_304_when_nothing_has_moved(client):
    first = client.get("/contract/state")
    assert first.json()["table_versions"] == {"codes": "1.0.0", "promos": "1.0.0"}
    tag = first.headers["etag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        again = client.get("/contract/state", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    reload(client, table="codes", rows={})
    moved = client.get("/contract/state", headers={"If-None-Match": tag})
    assert moved.status_code == 200
    assert moved.headers["etag"] != tag


@pytest.mark.spec("9.1", "5.7")
def test_the_same_versions_have_the_same_tag_on_every_server(client):
    with calling(app_of(contract())) as other:
        assert other.get("/contract/state").headers["etag"] == client.get("/contract/state").headers["etag"]


@pytest.mark.spec("9.2", "9.3", "9.4", "9.6")
def test_changes_are_composed_and_what_is_not_known_is_said(client):
    reload(client, table="codes", set={"growth": {"code": "WINTER"}, "scale": {}}, version="2")
    reload(client, table="codes", set={"growth": {"code": "SUMMER"}}, version="3")
    response = client.get(
        "/contract/changes",
        params={"since": ["codes:1.0.0", "promos:0.9", "gone:1"], "rules": "000000000000"},
    )
    answer = response.json()
    assert answer["tables"]["codes"] == {
        "since": "1.0.0",
        "version": "3",
        "known": True,
        "added": ["scale"],
        "removed": [],
        "changed": [],
        "affected_downstream": ["promos:SUMMER", "promos:WINTER"],
    }
    assert answer["tables"]["promos"] == {"since": "0.9", "version": "1.0.0", "known": False}
    assert answer["tables"]["gone"] == {"since": "1", "version": None, "known": False}
    assert answer["rules"]["known"] is False
    assert answer["table_versions"] == {"codes": "3", "promos": "1.0.0"}


@pytest.mark.spec("9.7")
@pytest.mark.parametrize("level", [1, 4, 5, 6])
def test_changes_tell_the_columns_that_differ(level):
    rows = {"a": {"x": 1, "y": 1, "z": None}, "b": {"x": 1}, "c": {}}
    provider = Provider({"t": rows}, versions={"t": "1"}, wire=WireFormat(level=level))
    for step in (
        {"a": {"x": 1.0, "y": 1, "z": 2, "w": None}},
        {"a": {"x": 1, "w": None, "z": 2}, "b": {"x": 1}},
    ):
        provider.registry.reload_table("t", set=step)
    provider.registry.reload_table("t", set={"new": {"x": 1}}, remove=["c"])
    with calling(app_of(provider)) as client:
        changes = client.get("/contract/changes", params={"since": "t:1"}).json()["tables"]["t"]
        assert (changes["added"], changes["removed"], changes["changed"]) == (["new"], ["c"], ["a"])
        assert changes.get("columns") == (None if level == 1 else {"a": ["w", "y", "z"]})


@pytest.mark.spec("9.9")
def test_what_has_moved_from_a_position_is_told_when_it_is_asked(client):
    def asked(position, **more):
        answer = client.get("/contract/changes", params={"from": position, **more})
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert "vary" not in answer.headers
        return answer.json()

    first = asked("*")["to"]
    assert asked("*", nonce="0.e3") == {"to": first, "nonce": "0.e3"}
    assert asked(first) == {"to": first}
    assert asked(f"{first}:m1", nonce="e3") == {"to": first, "nonce": "e3"}
    reload(client, table="codes", set={"growth": {"code": "WINTER"}, "scale": {}})
    reload(client, table="codes", set={"growth": {"code": "SUMMER"}})
    client.post("/admin/reload-rules", json={"rules": []})
    tie = {"from": "codes", "to": "promos", "relation": "needs", "via": "code"}
    now = asked("*")["to"]
    assert asked(f"{first}:m1", nonce="e4") == {
        "to": now,
        "from": f"{first}:m1",
        "moved": {
            "tables": {"codes": {"added": ["scale"], "downstream": ["promos:SUMMER", "promos:WINTER"]}},
            "rules": {"removed": [tie]},
        },
        "nonce": "e4",
    }
    assert asked("Abcdef9", nonce="e5") == {"to": now, "from": "Abcdef9", "unknown": "ahead", "nonce": "e5"}
    assert asked("Abcdef1:m1") == {"to": now, "from": "Abcdef1:m1", "unknown": "foreign"}
    tag = client.get("/contract/state").headers["etag"].strip('"')
    assert asked("*", nonce="e6", state="1") == {"to": now, "nonce": "e6", "state": tag}
    head = client.head("/contract/changes", params={"from": first})
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.spec("9.9")
def test_an_answer_is_as_long_as_it_must_be(client):
    first = client.get("/contract/changes", params={"from": "*"}).json()["to"]
    rows = {f"{number:0500}": {} for number in range(150)}
    reload(client, table="promos", set=rows)
    moved = client.get("/contract/changes", params={"from": first}).json()["moved"]
    assert moved["tables"]["promos"]["added"] == [*rows]


@pytest.mark.spec("9.9", "11.9")
def test_a_position_from_which_more_has_moved_than_an_answer_can_tell_is_too_far_back():
    provider = contract()
    with calling(app_of(provider)) as client:
        first = client.get("/contract/changes", params={"from": "*"}).json()["to"]
        provider.registry.reload_table("promos", set={f"{number:0500}": {} for number in range(2200)})
        answer = client.get("/contract/changes", params={"from": f"{first}:m1", "nonce": "e3"}).json()
    assert answer.pop("to") != first
    assert answer == {"from": f"{first}:m1", "unknown": "old", "nonce": "e3"}


@pytest.mark.spec("9.10")
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("", "ask with from=position, since=table:version or rules=fingerprint"),
        ("since=codes", "ask with since=table:version"),
        ("since=:1", "ask with since=table:version"),
        ("since=codes:", "ask with since=table:version"),
        ("sinc=codes:1", "there is no parameter 'sinc'"),
        ("nonce=e3", "ask with from=position, since=table:version or rules=fingerprint"),
        ("known=Abcdef7", "there is no parameter 'known'"),
        ("from=", "ask with from=position, and with a nonce of letters and digits"),
        ("from=nonsense", "ask with from=position"),
        ("from=Abcdef7%3Bn=e3&nonce=e3", "ask with from=position"),
        (f"from=Abcdef7&nonce={'n' * 33}", "ask with from=position"),
        ("from=Abcdef7&nonce=%0a", "ask with from=position"),
        (f"from={'x' * 10_000}", "ask with from=position"),
        ("&".join(["since=codes:1"] * 1001), "more than 1000 parameters"),
    ],
)
def test_a_malformed_query_is_refused(client, query, sentence):
    response = client.get(f"/contract/changes?{query}")
    assert response.status_code == 400
    assert sentence in response.json()["error"]
