"""The contract around WSGI apps, held to PEP 3333 on both sides."""

import gzip
import io
import json
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from wsgiref.util import FileWrapper, setup_testing_defaults
from wsgiref.validate import validator

import pytest

from shelflife.contract.stamps import table_versions_from_header
from shelflife.integrations.wsgi import ContractMiddleware, contract_app
from shelflife.server import Disclosure, Rejected, WireFormat
from tests.calling import ADMIN, TOKEN
from tests.integrations.checked import WANTED, provider_for
from tests.integrations.doors import grounds_at, unknown_grounds
from tests.integrations.event_streams import LISTENING
from tests.integrations.positions import position_of
from tests.integrations.serving_wsgi import calling_wsgi
from tests.integrations.wsgi_apps import django_with, flask_with

JSON = [("Content-Type", "application/json")]
GOOD = WANTED | {"promo": "A"}
VERSIONS = {"codes": "1"}


def contract(**options):
    return provider_for(versions=VERSIONS, **options)


class Answered:
    """What a server gets from an app."""

    def __init__(self, app, method="GET", path="/x", body=b"", **environ):
        self.starts = []
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "wsgi.input": io.BytesIO(body),
            "QUERY_STRING": "",
            "SCRIPT_NAME": "",
        } | environ
        environ = {"CONTENT_LENGTH": str(len(body)), "wsgi.errors": sys.stderr} | environ
        setup_testing_defaults(environ)
        self.iterable = app(environ, self._start)
        try:
            self.body = b"".join(self.iterable)
        finally:
            getattr(self.iterable, "close", lambda: None)()

    def _start(self, status, headers, exc_info=None):
        self.starts.append((status, headers, exc_info))
        return self.written.append

    @property
    def written(self):
        return self.__dict__.setdefault("_written", [])

    @property
    def status(self):
        return int(self.starts[-1][0][:3])

    @property
    def headers(self):
        return {name.lower(): value for name, value in self.starts[-1][1]}

    def json(self):
        return json.loads(self.body)


def under(provider, app, **options):
    """An app under the contract. Both sides of the middleware are held to PEP 3333."""
    return validator(ContractMiddleware(validator(app), provider, **options))


def checking(provider, wanted=WANTED, headers=JSON, body=(b'{"a":1}',)):
    """An app that checks what it is sent, and answers."""

    def app(environ, start_response):
        provider.check(json.loads(environ["wsgi.input"].read(1000) or json.dumps(wanted)))
        start_response("200 OK", list(headers))
        return list(body)

    return app


@pytest.mark.spec("5.1", "5.3")
@pytest.mark.parametrize("length", [None, "7"])
def test_a_json_object_is_stamped_in_its_body(length):
    provider = contract()
    headers = JSON if length is None else [*JSON, ("Content-Length", length)]
    app = ContractMiddleware(checking(provider, GOOD, headers), provider)
    answered = Answered(validator(app))
    assert answered.json() == {"a": 1, "table_versions": VERSIONS, "rules_version": "4f53cda18c2b"}
    assert answered.headers["content-length"] == str(len(answered.body))
    assert "contract-tables" not in answered.headers


UNTOUCHED = {
    "array": (JSON, [b"[1]"]),
    "text": ([("Content-Type", "text/plain")], [b"hello"]),
    "empty": (JSON, []),
    "stream": (JSON, iter([b'{"a":', b"1}"])),
    "compressed": ([*JSON, ("Content-Encoding", "gzip")], [gzip.compress(b'{"a":1}')]),
    "strong etag": ([*JSON, ("ETag", '"abc"')], [b'{"a":1}']),
    "other charset": ([("Content-Type", "application/json; charset=utf-16")], [b'{"a":1}']),
    "of unknown length": (JSON, iter([b'{"a":1}'])),
}


@pytest.mark.spec("5.4", "5.5", "5.6", "5.7")
@pytest.mark.parametrize("name", UNTOUCHED)
def test_everything_else_is_stamped_in_headers_and_left_as_it_is(name):
    provider = contract()
    headers, parts = UNTOUCHED[name]
    expected = parts if isinstance(parts, list) else [b'{"a":', b"1}"] if name == "stream" else [b'{"a":1}']

    def app(environ, start_response):
        provider.check(GOOD)
        start_response("200 OK", list(headers))
        return parts

    answered = Answered(under(provider, app))
    assert answered.body == b"".join(expected)
    assert table_versions_from_header(answered.headers["contract-tables"]) == VERSIONS
    assert answered.headers.get("content-length") is None


@pytest.mark.spec("5.9")
def test_head_is_stamped_in_headers_without_the_length_that_get_would_not_have():
    provider = contract()
    app = checking(provider, GOOD, [*JSON, ("Content-Length", "7")], ())
    answered = Answered(under(provider, app), "HEAD")
    assert table_versions_from_header(answered.headers["contract-tables"]) == VERSIONS
    assert "content-length" not in answered.headers


@pytest.mark.spec("5.10")
def test_only_a_checked_request_or_an_operation_that_is_named_tells_versions():
    provider = contract()

    def app(environ, start_response):
        start_response("200 OK", list(JSON))
        return [b"{}"]

    assert Answered(under(provider, app)).body == b"{}"
    assert "contract-tables" in Answered(under(contract(), app, operations=["GET /x"])).headers


def raising(provider):
    def app(environ, start_response):
        provider.check(WANTED)

    return app


def raising_as_it_is_read(provider):
    def app(environ, start_response):
        provider.check(WANTED)
        start_response("200 OK", list(JSON))
        yield b"{}"

    return app


def raising_after_its_start(provider):
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])

        def parts():
            provider.check(WANTED)
            yield b"never"

        return parts()

    return app


def handing_it_on_as_exc_info(provider):
    def app(environ, start_response):
        try:
            provider.check(WANTED)
        except Rejected:
            write = start_response("500 Oops", [("Content-Type", "text/html")], sys.exc_info())
            write(b"<h1>")
            return [b"Oops"]

    return app


def handing_it_on_as_it_is_read(provider):
    def app(environ, start_response):
        try:
            provider.check(WANTED)
        except Rejected:
            start_response("500 Oops", [("Content-Type", "text/html")], sys.exc_info())
            yield b"<h1>"
            yield b"Oops"

    return app


def handing_it_on_without_a_body(provider):
    def app(environ, start_response):
        try:
            provider.check(WANTED)
            yield b"never"
        except Rejected:
            start_response("500 Oops", [("Content-Type", "text/html")], sys.exc_info())

    return app


@pytest.mark.spec("3.1")
@pytest.mark.parametrize(
    "make",
    [
        raising,
        raising_as_it_is_read,
        raising_after_its_start,
        handing_it_on_as_exc_info,
        handing_it_on_as_it_is_read,
        handing_it_on_without_a_body,
    ],
)
def test_a_refusal_is_answered_however_it_leaves_the_app(make):
    provider = contract()
    answered = Answered(under(provider, make(provider)))
    assert (answered.status, answered.starts[-1][0]) == (422, "422 Unprocessable Content")
    assert answered.json()["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo": "A"}
    assert answered.written == []
    # Only a start that is taken back needs a reason.
    assert [bool(exc_info) for *_, exc_info in answered.starts] == [False, True][: len(answered.starts)]


def test_a_refusal_after_the_first_part_of_a_body_is_no_second_response():
    provider = contract()

    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"begun"
        provider.check(WANTED)

    with pytest.raises(Rejected):
        Answered(under(provider, app))


def test_whatever_else_an_app_raises_is_for_the_server():
    provider = contract()

    def app(environ, start_response):
        try:
            provider.check(WANTED)
        except Rejected:
            raise LookupError("of the app's own") from None

    with pytest.raises(LookupError):
        Answered(under(provider, app))


def test_an_error_page_of_an_app_that_has_dealt_with_a_refusal_is_its_own(caplog):
    provider = contract()

    def app(environ, start_response):
        try:
            provider.check(WANTED)
        except Rejected:
            start_response("500 Oops", [("Content-Type", "text/plain")])
            return [b"mine"]

    with caplog.at_level(logging.WARNING, "shelflife"):
        answered = Answered(under(provider, app))
    assert (answered.status, answered.body) == (500, b"mine")
    assert "answered a refusal of check with 500" in caplog.text


def test_an_app_may_take_a_start_back_that_has_not_gone_out():
    provider = contract()

    def app(environ, start_response):
        provider.check(GOOD)
        start_response("200 OK", list(JSON))
        try:
            raise LookupError("of the app's own")
        except LookupError:
            start_response("503 Later", [("Content-Type", "text/plain")], sys.exc_info())
            return [b"later"]

    answered = Answered(under(provider, app))
    assert [status for status, *_ in answered.starts] == ["503 Later"]


def test_a_start_without_a_reason_cannot_follow_another():
    provider = contract()

    def app(environ, start_response):
        provider.check(GOOD)
        start_response("200 OK", list(JSON))
        start_response("200 OK", list(JSON))
        return [b"{}"]

    with pytest.raises(AssertionError, match="twice"):
        Answered(ContractMiddleware(app, provider))


@pytest.mark.parametrize(("data", "is_stamped"), [(b'{"a":1}', True), (b'{"a":', False)])
def test_what_is_written_instead_of_returned_is_stamped_too(data, is_stamped):
    provider = contract()

    def app(environ, start_response):
        provider.check(GOOD)
        write = start_response("200 OK", [*JSON, ("Content-Length", "7")])
        write(data)
        return []

    answered = Answered(under(provider, app))
    assert (b"table_versions" in answered.written[0]) == is_stamped
    assert ("contract-tables" in answered.headers) != is_stamped


class Closing:
    """A body that notes that it was closed, and whose request it is then."""

    def __init__(self, provider, parts):
        self._provider, self._parts = provider, iter(parts)
        self.closed_for = []

    def __iter__(self):
        return self._parts

    def close(self):
        self.closed_for.append(self._provider.pin)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_body_is_closed_while_its_request_is_at_hand(is_refused):
    provider = contract()
    body = None

    def app(environ, start_response):
        nonlocal body

        def parts():
            provider.check(WANTED if is_refused else GOOD)
            yield b"{}"

        start_response("200 OK", list(JSON))
        body = Closing(provider, parts())
        return body

    answered = Answered(ContractMiddleware(app, provider))
    assert answered.status == (422 if is_refused else 200)
    [pin] = body.closed_for
    assert pin.has_checked
    assert pin.is_over
    assert provider.pin is None


def test_a_file_is_handed_on_for_the_server_to_send_as_it_likes(tmp_path):
    (tmp_path / "f").write_bytes(b"text")
    provider = contract()

    def app(environ, start_response):
        provider.check(GOOD)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return environ["wsgi.file_wrapper"]((tmp_path / "f").open("rb"))

    answered = Answered(ContractMiddleware(app, provider), **{"wsgi.file_wrapper": FileWrapper})
    assert isinstance(answered.iterable, FileWrapper)
    assert (answered.body, "contract-tables" in answered.headers) == (b"text", True)


def test_a_stream_reaches_the_client_as_it_comes():
    provider = contract()
    is_heard = threading.Event()

    def app(environ, start_response):
        provider.check(GOOD)
        start_response("200 OK", list(JSON))

        def parts():
            yield b'{"a":'
            assert is_heard.wait(60)
            yield b"1}"

        return parts()

    with calling_wsgi(ContractMiddleware(app, provider)) as client, client.stream("GET", "/x") as response:
        assert table_versions_from_header(response.headers["contract-tables"]) == VERSIONS
        parts = response.iter_raw()
        assert next(parts) == b'{"a":'
        is_heard.set()
        assert b"".join(parts) == b"1}"


def test_each_request_sees_one_state_whatever_is_reloaded_in_other_threads():
    provider = contract()
    both = threading.Barrier(2)

    def app(environ, start_response):
        before = dict(provider.state.table_versions)
        both.wait(60)  # for the reload
        both.wait(60)
        provider.check(GOOD)
        start_response("200 OK", list(JSON))
        return [json.dumps({"before": before, "after": dict(provider.state.table_versions)}).encode()]

    with calling_wsgi(ContractMiddleware(app, provider)) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.get, "/x")
        both.wait(60)
        provider.registry.reload_table("codes", set={"growth": {"code": "B"}}, version="2")
        both.wait(60)
        told = asked.result().json()
    assert told["before"] == told["after"] == told["table_versions"] == VERSIONS
    assert provider.state.table_versions == {"codes": "2"}


@pytest.mark.spec("12.3", "12.4")
def test_preconditions_are_judged():
    provider = contract()
    provider.be_ready()
    app = under(provider, checking(provider))
    headers = {
        f"HTTP_{name.upper().replace('-', '_')}": value
        for name, value in grounds_at(position_of(provider)).items()
    }
    body = json.dumps(GOOD).encode()
    met = Answered(app, "POST", body=body, **headers)
    assert (met.status, met.headers["contract-precondition"]) == (200, "met")
    provider.registry.reload_table("codes", set={"growth": {"code": "B"}})
    failed = Answered(app, "POST", body=body, **headers)
    assert (failed.status, failed.headers["contract-precondition"]) == (412, "failed")
    assert Answered(app, HTTP_CONTRACT_PRECONDITION="nonsense").status == 400


def mounted(provider, **options):
    """An app with the endpoints for clients at /contract, as a dispatcher would mount them."""
    endpoints = contract_app(provider, **options)

    def app(environ, start_response):
        path = environ["PATH_INFO"]
        if path.startswith("/contract/"):
            environ = environ | {"SCRIPT_NAME": "/contract", "PATH_INFO": path.removeprefix("/contract")}
            return endpoints(environ, start_response)
        return checking(provider)(environ, start_response)

    return ContractMiddleware(app, provider)


def test_clients_and_operators_have_their_endpoints():
    provider = contract(admin_token=TOKEN)
    app = mounted(provider, fixes=["POST /x"])
    state = Answered(app, path="/contract/state")
    assert state.json()["table_versions"] == VERSIONS
    assert Answered(app, path="/contract/state", HTTP_IF_NONE_MATCH=state.headers["etag"]).status == 304
    head = Answered(app, "HEAD", "/contract/state")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(state.body)))
    asked = json.dumps({"operation": "POST /x", "request": WANTED}).encode()
    fixes = Answered(app, "POST", "/contract/fixes", asked).json()["recovery_feedback"]["suggestions"]
    assert [one["parameters"] for one in fixes] == [{"promo": "A"}]
    reload = json.dumps({"table": "codes", "set": {"growth": {"code": "B"}}}).encode()
    assert Answered(app, "POST", "/admin/reload-table", reload).status == 401
    done = Answered(app, "POST", "/admin/reload-table", reload, HTTP_AUTHORIZATION=ADMIN["Authorization"])
    assert done.json()["changed"] == ["growth"]
    assert Answered(app, path="/admin/reload-table", HTTP_AUTHORIZATION=ADMIN["Authorization"]).status == 405


def test_a_body_that_is_too_long_or_has_no_end_is_not_read_on():
    provider = contract(admin_token=TOKEN)
    app = mounted(provider)
    assert Answered(app, "POST", "/contract/fixes", b" " * 70_000).status == 413
    assert Answered(app, "POST", "/contract/fixes", b"", CONTENT_LENGTH="").status == 400


@pytest.mark.parametrize("level", [0, 6])
def test_at_every_level_a_refusal_has_its_form(level):
    provider = provider_for(wire=WireFormat(level=level))
    answered = Answered(under(provider, raising(provider)))
    kind = {0: "text/plain; charset=utf-8", 6: "application/json"}[level]
    assert (answered.status, answered.headers["content-type"]) == (422, kind)


def test_with_a_disclosure_each_client_is_shown_names_of_its_own():
    disclosure = Disclosure(secret="a secret of 16 bytes or more")
    app = mounted(contract(disclosure=disclosure))
    ada, bob = (
        Answered(app, path="/contract/state", HTTP_AUTHORIZATION=who).json() for who in ("ada", "bob")
    )
    assert {"codes"} != ada["table_versions"].keys() != bob["table_versions"].keys() != {"codes"}


@pytest.mark.spec("13.14")
@pytest.mark.parametrize("framework", ["wsgi", "flask", "django"])
def test_a_server_that_holds_a_thread_for_each_request_has_no_feed_and_says_so(framework):
    provider = contract()
    make = {"wsgi": lambda *_: mounted(provider), "flask": flask_with, "django": django_with}[framework]
    with calling_wsgi(make(provider, "/x")) as client:
        refused = client.get("/contract/changes", headers=LISTENING)
        assert client.get("/contract/changes", params={"from": "*"}).status_code == 200
    assert refused.status_code == 406
    assert refused.json()["error"] == (
        "this server has no change feed, which would hold a thread for each listener; ask with from=position"
    )


def test_an_app_that_is_pinned_already_is_not_pinned_twice():
    provider = contract()
    inner = ContractMiddleware(checking(provider, GOOD), provider)
    assert Answered(ContractMiddleware(inner, provider)).body.count(b"table_versions") == 1


@pytest.mark.parametrize("read", ["readline", "readlines", "iter"])
def test_however_a_body_is_read_a_fix_rests_on_what_was_sent(read):
    provider = contract()

    def app(environ, start_response):
        stream = environ["wsgi.input"]
        lines = {
            "readline": lambda: [stream.readline()],
            "readlines": stream.readlines,
            "iter": lambda: stream,
        }
        provider.check(json.loads(b"".join(lines[read]())))

    answered = Answered(ContractMiddleware(app, provider), "POST", body=json.dumps(WANTED).encode())
    [told] = answered.json()["recovery_feedback"]["suggestions"]
    assert (told["cache_hint"], told["when"]) == ("cacheable", WANTED)


@pytest.mark.spec("12.8")
def test_an_operation_that_judges_no_precondition_is_warned_of(caplog):
    provider = contract()

    def app(environ, start_response):
        start_response("200 OK", list(JSON))
        return [b"{}"]

    header = unknown_grounds()["Contract-Precondition"]
    with caplog.at_level(logging.WARNING, "shelflife"):
        Answered(under(provider, app), HTTP_CONTRACT_PRECONDITION=header)
    assert "without judging their preconditions" in caplog.text


def test_a_fix_rests_on_the_body_and_not_on_what_was_added_to_it():
    provider = contract()

    def app(environ, start_response):
        provider.check({**json.loads(environ["wsgi.input"].read()), "plan": "growth"})

    answered = Answered(ContractMiddleware(app, provider), "POST", body=b"{}")
    [told] = answered.json()["recovery_feedback"]["suggestions"]
    assert told["cache_hint"] == "recompute"


def test_a_log_that_is_not_free_keeps_nobody_waiting(tmp_path, monkeypatch):
    provider = contract(log=tmp_path / "log.db")
    app = under(provider, checking(provider))
    try:
        assert Answered(app, "POST", body=json.dumps(GOOD).encode()).status == 200
        release = threading.Event()
        monkeypatch.setattr("shelflife.server.keeping_up._LONGEST_LOOK_S", 0.05)
        monkeypatch.setattr(provider.registry, "catch_up", release.wait)
        answered = Answered(app, "POST", body=json.dumps(GOOD).encode(), HTTP_CONTRACT_AT="*;n=n1")
        release.set()
        assert answered.status == 200
        assert "at" not in answered.json()
    finally:
        provider.close()
