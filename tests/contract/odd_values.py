"""Whatever Python can hold where JSON is meant, whether JSON can carry it or not."""

from hypothesis import strategies as st

from shelflife.contract.values import MOST_DIGITS

odd = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([20, MOST_DIGITS - 1, MOST_DIGITS]).map(lambda digits: 10**digits),
        st.floats(),
        st.text(st.characters(), max_size=3),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
