"""The contract's own endpoints, over real HTTP."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.contract import Rule
from shelflife.contract.messages import ReloadRules, ReloadTable
from shelflife.server import WireFormat
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints, EndpointCall
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.small_contract import TIE, app_of, contract, reload


@pytest.fixture
def provider():
    return contract()


@pytest.fixture
def client(provider):
    with calling(app_of(provider), headers=ADMIN) as client:
        yield client


@pytest.mark.spec("7.1", "7.5", "7.6", "2.4")
def test_a_change_is_reported_with_its_diff_and_what_lies_downstream(client):
    response = reload(client, table="codes", set={"growth": {"code": "WINTER"}}, version="1.1.0")
    assert response.status_code == 200
    assert response.json() == {
        "table": "codes",
        "old_version": "1.0.0",
        "new_version": "1.1.0",
        "added": [],
        "removed": [],
        "changed": ["growth"],
        "affected_downstream": ["promos:SUMMER"],
    }


@pytest.mark.spec("7.1")
def test_a_whole_table_is_replaced(client, provider):
    report = reload(client, table="promos", rows={"NEW": {"percent": 5}}).json()
    assert (report["added"], report["removed"]) == (["NEW"], ["SUMMER", "WINTER"])
    assert provider.registry.rows("promos") == {"NEW": {"percent": 5}}
    assert reload(client, table="promos", rows={}).json()["removed"] == ["NEW"]


@pytest.mark.spec("7.19", "7.8")
def test_a_reload_that_is_to_replace_a_version_replaces_that_one_or_nothing(client, provider):
    rotate = {"table": "codes", "set": {"growth": {"code": "WINTER"}}, "replaces": "1.0.0"}
    report = reload(client, **rotate).json()
    refused = reload(client, **{**rotate, "set": {"growth": {"code": "SPRING"}}})
    assert refused.status_code == 409
    now = report["new_version"]
    assert (
        refused.json()["error"]
        == f"the table codes is at version {now}, and this reload is to replace '1.0.0'"
    )
    assert provider.registry.rows("codes")["growth"] == {"code": "WINTER"}
    assert reload(client, **{**rotate, "replaces": now}).is_success
    assert reload(client, **{**rotate, "table": "none"}).status_code == 404


@pytest.mark.spec("7.19")
def test_of_many_who_replace_the_same_version_one_does(client):
    with ThreadPoolExecutor(8) as threads:
        sent = [
            threads.submit(reload, client, table="codes", set={"growth": {"code": f"C{n}"}}, replaces="1.0.0")
            for n in range(8)
        ]
        statuses = [one.result().status_code for one in sent]
    assert sorted(statuses) == [200, *[409] * 7]


@pytest.mark.spec("7.7")
def test_rules_are_reloaded(client):
    before = client.get("/contract/state").json()["rules_version"]
    rule = {"from": "codes", "to": "promos", "relation": "needs", "via": "code"}
    report = client.post("/admin/reload-rules", json={"remove": [rule]}).json()
    assert report["old_version"] == before
    assert report["removed"] == [rule]
    changes = client.get("/contract/changes", params={"rules": before}).json()["rules"]
    assert (changes["known"], changes["added"], changes["removed"]) == (True, [], [rule])
    redeclared = rule | {"to": "codes"}
    client.post("/admin/reload-rules", json={"rules": [rule]})
    report = client.post("/admin/reload-rules", json={"rules": [redeclared]}).json()
    assert (report["added"], report["removed"]) == ([redeclared], [rule])


@pytest.mark.spec("8.1", "8.2", "2.4")
def test_the_graph_shows_nodes_and_edges(client):
    graph = client.get("/admin/graph").json()
    assert graph["nodes"]["codes:growth"] == {"table": "codes", "key": "growth", "version": "1.0.0"}
    assert graph["edges"] == [{"from": "codes:growth", "to": "promos:SUMMER", "relation": "needs"}]


@pytest.mark.spec("2.4")
@pytest.mark.parametrize("level", [1, 4])
def test_below_level_5_there_is_no_graph_and_nothing_downstream(level):
    with calling(app_of(contract(wire=WireFormat(level=level))), headers=ADMIN) as client:
        assert client.get("/admin/graph").status_code == 404
        report = reload(client, table="codes", set={"growth": {"code": "WINTER"}})
        assert "affected_downstream" not in report.json()
        changes = client.get("/contract/changes", params={"since": "codes:1.0.0", "rules": "x"}).json()
        assert "affected_downstream" not in changes["tables"]["codes"]
        assert "rules" not in changes


@pytest.mark.spec("10.1")
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", b"Bearer \xff\xfe"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/admin/reload-table"),
        ("POST", "/admin/reload-rules"),
        ("GET", "/admin/graph"),
        ("PUT", "/admin/graph"),
    ],
)
def test_without_the_token_the_admin_endpoints_refuse(provider, method, path, header):
    headers = {} if header is None else {"Authorization": header}
    before = provider.state
    with calling(app_of(provider)) as client:
        response = client.request(method, path, headers=headers, content=b'{"table": "codes", "rows": {}}')
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert provider.state is before


@pytest.mark.spec("10.2")
def test_without_a_configured_token_there_are_no_admin_endpoints():
    with calling(app_of(contract(admin_token=None)), headers=ADMIN) as client:
        for path in ("/admin/graph", "/admin/reload-table"):
            assert client.get(path).status_code == 404
        assert reload(client, table="codes", rows={}).status_code == 404
        assert client.get("/contract/state").status_code == 200


def test_the_scheme_is_not_case_sensitive(client):
    assert client.get("/admin/graph", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/admin/reload-table", {"POST"}),
        ("POST", "/contract/state", {"GET", "HEAD"}),
        ("DELETE", "/admin/graph", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_refused(client, method, path, allowed):
    response = client.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == allowed


def test_head_has_the_headers_of_get_and_no_body(client):
    get, head = client.get("/contract/state"), client.head("/contract/state")
    assert head.content == b""
    assert head.headers["etag"] == get.headers["etag"]
    assert head.headers["content-length"] == get.headers["content-length"]


ROW = '{"table": "codes", "set": {"k": %s}}'
BAD_RELOADS = {
    "unknown table": ('{"table": "cods", "rows": {}}', 404, "there is no table called 'cods'"),
    "odd table": ('{"table": "\\u0000", "rows": {}}', 404, "there is no table called '\\x00'"),
    "row is a number": (ROW % "5", 422, "row 'k' of table codes is 5; a row is an object"),
    "row is null": (ROW % "null", 422, "row 'k' of table codes is None; a row is an object"),
    "empty key": ('{"table": "codes", "set": {"": {}}}', 422, "a key of table codes is empty"),
    "duplicate key": ('{"table": "codes", "rows": {"a": {}, "a": {}}}', 400, "two members of the same name"),
    "duplicate column": (ROW % '{"x": 1, "x": 2}', 400, "two members of the same name"),
    "duplicate in disguise": (
        ROW % '{"x:": 1, "y": "\\u003a", "y": "\\u003a"}',
        400,
        "two members of the same name",
    ),
    "removed twice": ('{"table": "codes", "remove": ["a", "a"]}', 422, "removed twice"),
    "set and removed": ('{"table": "codes", "set": {"a": {}}, "remove": ["a"]}', 422, "both set and removed"),
    "nothing to do": ('{"table": "codes"}', 422, "either rows (the whole table) or set and remove"),
    "both forms": ('{"table": "codes", "rows": {}, "set": {}}', 422, "either rows (the whole table) or set"),
    "unknown member": ('{"table": "codes", "rows": {}, "force": true}', 422, "unknown field `force`"),
    "version taken": (
        '{"table": "codes", "rows": {}, "version": "1.0.0"}',
        409,
        "was used before for other content",
    ),
    "bad version": ('{"table": "codes", "rows": {}, "version": "é"}', 422, "cannot be a version"),
    "version is a number": ('{"table": "codes", "rows": {}, "version": 2}', 422, "Expected `str | null`"),
    "no object": ("[]", 422, "Expected `object`, got `array`"),
    "empty body": ("", 400, "not valid JSON"),
    "not json": ('{"table": ', 400, "not valid JSON"),
    "trailing text": ('{"table": "codes", "rows": {}} x', 400, "not valid JSON"),
    "two objects": ('{"table": "codes", "rows": {}}{}', 400, "not valid JSON"),
    "byte order mark": ('\ufeff{"table": "codes", "rows": {}}', 400, "not valid JSON"),
    "NaN": (
        ROW % '{"x": NaN}',
        400,
        "the body is not valid JSON: 'set/k/x' holds a number that JSON cannot carry: NaN",
    ),
    "Infinity": (ROW % '{"x": [-Infinity]}', 400, "the body is not valid JSON: 'set/k/x/0' holds a number"),
    "infinite": (
        ROW % '{"x": 1e999}',
        422,
        "row 'k' of table codes holds a number that JSON cannot carry: infinity",
    ),
    "too many digits": (
        ROW % ('{"x": [' + "9" * 4400 + "]}"),
        422,
        "row 'k' of table codes holds a number that JSON cannot carry: one of more than 4300 digits",
    ),
    "too many digits in disguise": (
        ROW % ('{"x": -' + "9" * 4400 + ', "y": "\\u003a"}'),
        422,
        "row 'k' of table codes holds a number",
    ),
    "half a surrogate": (
        ROW % '{"x": "\\ud800"}',
        422,
        "row 'k' of table codes holds text that is not valid Unicode",
    ),
    "half a surrogate for a key": (
        '{"table": "codes", "set": {"\\ud800": {}}}',
        422,
        "the key '\\ud800' of table codes is not valid Unicode",
    ),
    "half a surrogate for a name": (
        ROW % '{"\\udfff": 1}',
        422,
        "row 'k' of table codes has a name that is not",
    ),
    "half a surrogate for a member": (
        '{"table": "codes", "set": {}, "\\ud800": 1}',
        422,
        "a member has a name that is not valid Unicode",
    ),
    "half a surrogate twice": (ROW % '{"\\udfff": 1, "\\udfff": 1}', 400, "two members of the same name"),
    "half a surrogate for a table": ('{"table": "\\ud800", "set": {}}', 404, "no table called '\\ud800'"),
    "half a surrogate for a version": (
        '{"table": "codes", "set": {}, "version": "\\ud800"}',
        422,
        "cannot be a version",
    ),
    "empty version": ('{"table": "codes", "set": {}, "version": ""}', 422, "'' cannot be a version"),
    "a number for a key": ('{"table": "codes", "remove": [1e999]}', 422, "Expected `str`"),
    "deep": ('{"table": "codes", "set": {"k": {"x": ' + "[" * 40 + "]" * 40 + "}}}", 422, "nested deeper"),
    "very deep": ("[" * 20_000 + "]" * 20_000, 400, "nested too deeply"),
    "large": (
        '{"table": "codes", "rows": {"a": {"x": "' + "x" * 100_000 + '"}}}',
        413,
        "larger than 100000 bytes",
    ),
}


@pytest.mark.spec("7.8", "7.9")
@pytest.mark.parametrize("name", BAD_RELOADS)
def test_a_bad_reload_gets_one_clear_sentence_and_changes_nothing(client, provider, name):
    body, status, sentence = BAD_RELOADS[name]
    before = provider.state
    response = client.post("/admin/reload-table", content=body.encode())
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert response.json()["success"] is False
    assert sentence in response.json()["error"]
    assert "\n" not in response.json()["error"]
    assert provider.state is before


RULES = '{"rules": [{"from": "codes", "to": "promos", "relation": "r", %s}]}'


@pytest.mark.spec("7.9")
@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ('{"rules": [{"from": "codes", "to": "plans", "relation": "r"}]}', 422, "names the table plans"),
        ('{"rules": [{"from": "codes", "to": "a b", "relation": "r"}]}', 422, "cannot name a table"),
        ('{"rules": [{"from": "codes", "relation": "r"}]}', 422, "missing required field `to`"),
        (
            '{"remove": [{"from": "codes", "to": "promos", "relation": "r"}]}',
            422,
            "no rule codes:r like that",
        ),
        ("{}", 422, "either rules (all of them) or add and remove"),
        (RULES % '"vai": "code"', 422, "unknown field `vai`"),
        (RULES.replace("rules", "add") % '"vai": null', 422, "unknown field `vai`"),
        (RULES.replace("rules", "remove") % '"vai": 1e999', 422, "unknown field `vai`"),
        (RULES % '"via": "cod"', 422, "goes by the column 'cod', which no row of codes has"),
        (RULES % '"via": "\\ud800"', 422, "'\\ud800' cannot be a column"),
        (RULES % '"via": 1e999', 422, "Expected `str | null`"),
        (RULES % '"via": NaN', 400, "the body is not valid JSON: 'rules/0/via' holds a number"),
    ],
)
def test_a_bad_reload_of_rules_is_refused(client, provider, body, status, sentence):
    before = provider.state
    response = client.post("/admin/reload-rules", content=body)
    assert response.status_code == status
    assert sentence in response.json()["error"]
    assert provider.state is before


def test_bytes_that_are_no_text_are_refused(client):
    response = client.post("/admin/reload-table", content=b'{"table": "\xff", "rows": {}}')
    assert response.status_code == 400


@pytest.mark.spec("7.9")
def test_a_large_body_without_a_length_is_refused_too(client, provider):
    before = provider.state
    response = client.post("/admin/reload-table", content=(b"x" * 10_000 for _ in range(50)))
    assert response.status_code == 413
    assert provider.state is before


def test_a_client_that_hangs_up_in_the_middle_changes_nothing(provider):
    with calling(app_of(provider), headers=ADMIN) as client:
        before = provider.state

        def half():
            yield b'{"table": "codes", "rows"'
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            client.post("/admin/reload-table", content=half())
        with httpx2.Client(base_url=client.base_url, trust_env=False) as other:
            assert other.get("/contract/state").status_code == 200
        assert provider.state is before


@pytest.mark.spec("6.1", "6.2")
def test_errors_can_be_problems(client):
    response = client.post(
        "/admin/reload-table", content=b"{", headers={"Accept": "application/problem+json"}
    )
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["title"], problem["status"]) == ("Bad Request", 400)
    assert "not valid JSON" in problem["detail"]


def test_keys_with_colons_and_any_script_are_fine(client):
    keys = ["urn:x:1", "ключ", "🙂", "a,b", '"q"']
    report = reload(client, table="codes", rows={key: {"x": ":"} for key in keys}).json()
    assert report["added"] == sorted(keys)


def test_every_message_that_the_server_sends_fits_its_type(client):
    wire = {"table": "codes", "set": {"a": {"b": [1, None, True, 1.5, "x:y"]}}, "remove": [], "version": "9"}
    assert msgspec.json.decode(json.dumps(wire), type=ReloadTable).version == "9"
    assert client.post("/admin/reload-table", json=wire).status_code == 200


DEEP_QUESTION = '{"n": ' + "[" * 33 + "]" * 33 + "}"


@pytest.mark.spec("12.7")
@pytest.mark.parametrize(
    ("request_text", "status", "sentence"),
    [
        ('{"n": 1e999}', 422, "the field n holds a number that JSON cannot carry: infinity"),
        ('{"n": [%s]}' % ("9" * 4400), 422, "the field n holds a number that JSON cannot carry"),
        ('{"n": {"a": "\\ud800"}}', 422, "the field n holds text that is not valid Unicode"),
        ('{"\\ud800": 1}', 422, "the field '\\ud800' has a name that is not valid Unicode"),
        (DEEP_QUESTION, 422, "the field n is nested deeper than 32 levels"),
        (
            '{"n": NaN}',
            400,
            "the body is not valid JSON: 'request/n' holds a number that JSON cannot carry: NaN",
        ),
        ("[]", 422, "Expected `object`"),
    ],
)
def test_a_question_about_a_request_that_json_cannot_carry_is_refused(client, request_text, status, sentence):
    body = f'{{"operation": "POST /x", "request": {request_text}}}'
    response = client.post("/contract/fixes", content=body)
    assert response.status_code == status
    assert sentence in response.json()["error"]


def test_a_body_in_another_encoding_is_told_so(client):
    response = client.post("/admin/reload-table", content='{"table": "é"}'.encode("latin-1"))
    assert (response.status_code, response.json()["error"]) == (400, "the body is not valid UTF-8")


@pytest.mark.spec("4.7")
def test_a_client_ignores_members_of_a_rule_that_it_does_not_know():
    text = b'{"from": "codes", "to": "promos", "relation": "needs", "via": "code", "since": 7}'
    assert msgspec.json.decode(text, type=Rule) == TIE
    with pytest.raises(msgspec.ValidationError, match="unknown field `since`"):
        msgspec.json.decode(b'{"rules": [' + text + b"]}", type=ReloadRules)


@pytest.mark.spec("7.7")
def test_a_rule_that_is_sent_is_the_rule_that_was_declared(client, provider):
    before = provider.state
    sent = {"from": "codes", "to": "promos", "relation": "needs", "via": "code"}
    report = client.post("/admin/reload-rules", json={"rules": [sent]}).json()
    assert (report["added"], report["removed"]) == ([], [])
    assert provider.state is before
    assert client.post("/admin/reload-rules", json={"remove": [sent]}).json()["removed"] == [sent]
    assert client.post("/admin/reload-rules", json={"add": [sent]}).json()["added"] == [sent]
    assert list(provider.state.rules) == [TIE]


junk = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=4),
        st.sampled_from(["codes", "promos", "growth", "needs", "", "1.0.0", 10**30]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["growth", "code", "from", "to", "relation", "via", "", "\ud800"]), inner
        )
    ),
    max_leaves=10,
)
MEMBERS = [
    "table",
    "rows",
    "set",
    "remove",
    "version",
    "rules",
    "add",
    "operation",
    "request",
    "wait_s",
    "odd",
]
bodies = st.one_of(
    st.dictionaries(st.sampled_from(MEMBERS), junk).map(json.dumps),
    junk.map(json.dumps),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=20),
    st.builds(
        lambda body, at, more: body[: at % (len(body) + 1)] + more + body[at % (len(body) + 1) :],
        st.dictionaries(st.sampled_from(MEMBERS), junk).map(json.dumps),
        st.integers(0, 300),
        st.sampled_from(
            ['"', "}", "{", "\\ud800", "1e999", "\\", "NaN", ":", ",", "\0", "\ufeff", "9" * 4400]
        ),
    ),
)


def clean(value):
    """Whether JSON can carry a value, by Python's own writer."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


@pytest.mark.spec("7.9")
@settings(max_examples=120 if settings().max_examples < 1000 else 10_000, deadline=None)
@given(
    st.sampled_from(
        [
            "/admin/reload-table",
            "/admin/refresh-table",
            "/admin/reload-rules",
            "/contract/fixes",
            "/contract/changes",
        ]
    ),
    bodies,
)
def test_whatever_comes_is_taken_whole_or_refused_in_one_sentence(path, body):
    content = body if isinstance(body, bytes) else body.encode(errors="surrogatepass")
    provider = contract()
    query = content.decode("latin-1") if path == "/contract/changes" else ""
    method = "GET" if query else "POST"
    before = provider.state
    both = (ContractEndpoints(provider, lambda asked: asked), AdminEndpoints(provider))
    [endpoints] = [one for one in both if path in one.by_path]
    answer = endpoints.answer(EndpointCall(method, path, query, {}, content))
    assert answer.status in (200, 400, 404, 409, 413, 422)
    if answer.status != 200:
        error = msgspec.json.decode(answer.body)["error"]
        assert error
        assert "\n" not in error
        assert provider.state is before
    elif path != "/contract/changes":
        assert clean(json.loads(content))
