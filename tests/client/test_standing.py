"""May what is remembered be used now? One answer, whatever it is made from."""

import pytest

from shelflife.client.entries import Knowledge
from shelflife.client.shelf import Dealing, Doubts, Revalidate, Usable, Withheld, standing_of
from tests.client.entries import entry

ASK = Revalidate("the server is in doubt")
WAIT = Withheld("it is being found out")


@pytest.mark.parametrize(
    ("remembered", "server", "expected"),
    [
        (entry(generation=1), Usable(), Usable),
        (entry(generation=0), Usable(), Revalidate),
        (entry(is_suspect=True, generation=1), Usable(), Revalidate),
        (entry(strategy="A1", generation=1), Usable(), Withheld),
        (entry(strategy="A1", is_suspect=True), Usable(), Withheld),
        (entry(), ASK, Revalidate),
        (entry(is_suspect=True), ASK, Revalidate),
        (entry(strategy="A1"), ASK, Withheld),
        (entry(), WAIT, Withheld),
        (entry(is_suspect=True), WAIT, Withheld),
    ],
)
def test_whether_an_entry_may_be_used(remembered, server, expected):
    standing = standing_of(remembered, Knowledge(strategy="exact", generation=1), server)
    assert type(standing) is expected
    assert isinstance(standing, Usable) or standing.why


class Failed(Exception):
    """Whatever keeps a response from being dealt with."""


def fail(doubts, root="r"):
    with pytest.raises(Failed), Dealing(doubts, root):
        raise Failed


def test_a_server_stands_until_a_response_could_not_be_dealt_with():
    doubts = Doubts()
    assert isinstance(doubts.standing_of("r"), Usable)
    fail(doubts)
    assert isinstance(doubts.standing_of("r"), Revalidate)
    assert isinstance(doubts.standing_of("another"), Usable)


def test_a_response_that_is_dealt_with_lifts_the_doubt_and_knows_of_it():
    doubts = Doubts()
    fail(doubts)
    with Dealing(doubts, "r") as is_doubted:
        assert is_doubted
        assert isinstance(doubts.standing_of("r"), Revalidate)
    assert isinstance(doubts.standing_of("r"), Usable)


def test_a_doubt_that_comes_up_while_another_response_is_dealt_with_stays():
    doubts = Doubts()
    with Dealing(doubts, "r"):
        fail(doubts)
    assert isinstance(doubts.standing_of("r"), Revalidate)


def test_a_doubt_is_not_taken_for_an_earlier_one_that_was_settled():
    doubts = Doubts()
    fail(doubts)
    with Dealing(doubts, "r"):
        with Dealing(doubts, "r"):
            pass
        assert isinstance(doubts.standing_of("r"), Usable)
        fail(doubts)
    assert isinstance(doubts.standing_of("r"), Revalidate)


def test_while_it_is_being_found_out_what_is_stale_all_is_withheld():
    doubts = Doubts()
    with doubts.withholding("r"), doubts.withholding("r"):
        assert isinstance(doubts.standing_of("r"), Withheld)
    assert isinstance(doubts.standing_of("r"), Usable)
