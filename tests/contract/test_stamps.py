"""Stamps in headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import BadMessage
from shelflife.contract.stamps import quoted, table_versions_from_header, table_versions_header, unquoted

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
versions = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)


@pytest.mark.spec("5.5")
@given(st.dictionaries(names, versions))
def test_what_is_written_into_the_header_is_read_back(table_versions):
    assert table_versions_from_header(table_versions_header(table_versions)) == table_versions


@pytest.mark.spec("5.5")
def test_the_header_is_a_list_of_strings_with_a_parameter():
    assert table_versions_header({"a": "1.0.0", "b": 'q"\\'}) == '"a";v="1.0.0", "b";v="q\\"\\\\"'


@pytest.mark.parametrize("value", ["a", '"a"', '"a";v=1', '"a";v="1" "b";v="2"', '"a";v="\x00"', '"a";w="1"'])
def test_a_malformed_header_is_refused(value):
    with pytest.raises(BadMessage, match="Contract-Tables"):
        table_versions_from_header(value)


@pytest.mark.spec("5.6", "5.7")
@given(versions)
def test_a_string_is_read_back(text):
    assert unquoted(quoted(text)) == text


def test_what_is_not_a_string_is_refused():
    with pytest.raises(BadMessage, match="not a quoted string"):
        unquoted("abc")
