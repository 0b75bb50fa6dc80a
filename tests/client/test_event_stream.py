"""What a stream of events tells, however its bytes are cut."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.client.event_stream import EventStream
from shelflife.contract import BadMessage

LINE_ENDS = [b"\n", b"\r\n", b"\r"]
NO_LINE_ENDS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e"
"""Where Python ends lines of text too."""


def told(*chunks):
    stream = EventStream()
    return [one for chunk in chunks for one in stream.told(chunk)]


def cut(content, lengths):
    """The content in pieces of these lengths, and the rest. None of them is empty."""
    for length in [*lengths, len(content)]:
        if content:
            yield content[:length]
        content = content[length:]


@pytest.mark.spec("13.13")
@pytest.mark.parametrize("end", LINE_ENDS)
def test_lines_end_in_lf_crlf_or_cr(end):
    assert told(end.join([b"id: 1", b"event: moved", b"data: {}", b"", b""])) == [b"{}"]
    assert told(end.join([b"data: one", b"data: two", b"", b""])) == [b"one\ntwo"]


@pytest.mark.spec("13.13")
def test_a_line_ends_nowhere_else():
    assert told(f"data: {NO_LINE_ENDS}\n\n".encode()) == [NO_LINE_ENDS.encode()]


def test_a_crlf_that_comes_in_two_chunks_is_one_line_end():
    assert told(b"data: one\r", b"\ndata: two\r", b"\n\r", b"\n") == [b"one\ntwo"]
    assert told(b"data: one\r", b"data: two\r", b"\r") == [b"one\ntwo"]


def test_an_event_that_ends_in_cr_does_not_wait_for_what_comes_next():
    assert told(b"data: one\r\r") == [b"one"]


@given(
    lines=st.lists(
        st.sampled_from(
            [b"data: one", b"data:two", b"data", b": comment", b"id: 1", b"", b"", b"other: data: x"]
        )
    ),
    end=st.sampled_from(LINE_ENDS),
    lengths=st.lists(st.integers(1, 9)),
)
def test_however_the_bytes_are_cut_the_same_is_told(lines, end, lengths):
    whole = told(b"".join(line + b"\n" for line in lines))
    assert told(*cut(b"".join(line + end for line in lines), lengths)) == whole


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b"data: x", b"x"),
        (b"data:x", b"x"),
        (b"data:  x", b" x"),
        (b"data: a: b", b"a: b"),
        (b"data", b""),
        (b"\xef\xbb\xbfdata: x", b"x"),
    ],
)
def test_the_data_of_an_event(line, data):
    assert told(line + b"\n\n") == [data]


@pytest.mark.parametrize(
    "line", [b"id: 1", b"event: moved", b"retry: 5", b"Data: x", b" data: x", b"dat", b""]
)
def test_an_event_without_data_tells_nothing(line):
    assert told(line + b"\n\n") == []


def test_a_byte_order_mark_is_skipped_only_at_the_start():
    assert told(b"\n\xef\xbb\xbfdata: x\n\n") == []


def test_a_comment_is_a_sign_of_life():
    assert told(b": still here\n\n") == [b""]


def test_an_event_that_is_not_complete_is_none():
    assert told(b"data: {}\n") == []


@pytest.mark.spec("13.11")
def test_an_event_as_long_as_a_server_may_send_is_taken():
    assert told(b"data: " + b"x" * 65_536 + b"\n\n") == [b"x" * 65_536]


@pytest.mark.parametrize("part", [b"x", b"data: " + 90 * b"x" + b"\n", b"data: " + 90 * b"x" + b"\r"])
def test_an_event_without_end_is_given_up_before_it_is_much(part):
    chunk = part * (65_536 // len(part))
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage, match="an event of the feed is longer than 1048576 bytes"):
            told(*[chunk] * 1000)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [b": x\n", b"id: x\n", b"\n", b"data: x\n\n"])
def test_a_stream_without_end_is_not_kept(part):
    stream = EventStream()
    chunk = part * (65_536 // len(part))
    tracemalloc.start()
    try:
        for _ in range(4):
            for _ in stream.told(chunk):
                pass
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024  # most of it is the chunk and its lines
    finally:
        tracemalloc.stop()


def test_a_line_that_trickles_in_costs_no_more_than_one_that_does_not():
    """Each byte is looked at once: a quarter of a million of them take well below a second."""
    stream = EventStream()
    assert [one for _ in range(250_000) for one in stream.told(b"x")] == []
    assert list(stream.told(b"\n\n")) == []
