"""Stamps that go into a body."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.server.feedback import stamped
from shelflife.server.stamps import Stamp

MEMBERS = b'"table_versions":{"t":"1"},"rules_version":"0123456789ab"'
STAMPS = {"table_versions": {"t": "1"}, "rules_version": "0123456789ab"}


@pytest.mark.spec("5.3")
@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b" { } ",
        b"{\n}",
        b'{"a":1}',
        b' {"a": [1, {"b": null}]}\n',
        '{"é": "🙂"}'.encode(),
        b'{"a":1e400}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":{"table_versions":{}}}',
        b'{"a":"\\"table_versions\\":1"}',
        b'{"Table_versions":1,"at_":2,"epoch":3}',
    ],
)
def test_the_stamps_go_into_one_whole_json_object(body):
    whole = stamped(body, Stamp(MEMBERS, []))
    assert list(json.loads(whole.replace(b"9" * 5000, b"9")).items())[-2:] == list(STAMPS.items())
    assert whole.startswith(body.strip()[:-1].strip())
    at = json.loads(stamped(body, Stamp(b'"at":"Aaaaaa1"', [])).replace(b"9" * 5000, b"9"))
    assert list(at.items())[-1] == ("at", "Aaaaaa1")


@pytest.mark.spec("5.3", "5.4")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}}",
        b'{"a":1}\n{"b":2}',
        b'{"a":1}{}',
        b'{"a":1},{}',
        b"{not json}",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":{x}}',
        b'{"a":[1,]}',
        b'{"a":[1}',
        b'{"a":NaN}',
        b'{"a":01}',
        b'{"a":"\n"}',
        b'{"a":"\\q"}',
        b'{"a":"\xff"}',
        b'{"\xff":1}',
        b'{"a":{"b":"\xc3"}}',
        b'{"a":"\\ud800"}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"table_versions":{}}',
        b'{"a":1,"rules_version":null}',
        b'{"at":"Aaaaaa1"}',
        b'{"at":null}',
        b'{"table\\u005fversions":{}}',
        b'{"\\u0061t":1}',
        b'{"a":1} x}',
        b'\x0b{"a":1}',
    ],
)
def test_any_other_body_stays_as_it_is(body):
    assert stamped(body, Stamp(MEMBERS, [])) == b""


def takes_stamps(body):
    """Whether a body is one JSON object without any of the members, by Python's own reader."""

    def refuse(constant):
        raise ValueError(constant)

    try:
        read = json.loads(body.decode(), parse_constant=refuse)
        return isinstance(read, dict) and not {"table_versions", "rules_version", "at"} & read.keys()
    except ValueError:
        return False


PARTS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"1",
    b"-",
    b"e",
    b".",
    b"\\",
    b"\\u0041",
    b"t",
    b"\xc3",
    b"\xa9",
]


@pytest.mark.spec("5.3", "5.4")
@given(
    st.sampled_from([b'{"a":1,"b":[1.5e3,true,"x\\n"],"c":{"d":{}}}', '{"é":["ü"]}'.encode()]),
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 3), st.sampled_from([*PARTS, b"\n", b""])), max_size=3
    ),
)
def test_what_is_stamped_was_an_object_and_is_one(body, edits):
    for at, length, part in edits:
        body = body[:at] + part + body[at + length :]
    whole = stamped(body, Stamp(MEMBERS, []))
    assert bool(whole) == takes_stamps(body)
    if whole:
        assert json.loads(whole) == json.loads(body) | STAMPS
