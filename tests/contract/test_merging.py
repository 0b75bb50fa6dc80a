"""What makes one request of another, as a merge patch."""

from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract.merging import merged, patch_between
from shelflife.contract.values import same_json
from shelflife.contract.when import as_read

VALUES = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["a", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
REQUESTS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)


@given(one=REQUESTS, other=REQUESTS)
def test_what_is_between_two_requests_makes_one_of_the_other_as_a_server_reads_them(one, other):
    patch = patch_between(one, other)
    assert same_json(as_read(merged(one, patch)), as_read(other))


@given(one=REQUESTS)
def test_between_a_request_and_itself_is_nothing(one):
    assert patch_between(one, one) == {}


def test_only_what_differs_is_named():
    one = {"options": {"code": "A", "colour": "red"}, "note": 1, "new": {"x": 1}}
    other = {"options": {"code": "B", "colour": "red"}, "note": 1}
    assert patch_between(one, other) == {"options": {"code": "B"}, "new": None}
