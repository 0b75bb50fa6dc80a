"""Which positions a follower has heard: also those that one event has led over, and none of another log."""

import contextlib
import json

import pytest

from shelflife.client import Memory
from shelflife.integrations.following import Following, Offline
from shelflife.testing import serving
from tests.integrations.event_streams import answer, until_gone
from tests.integrations.followers import (
    FEED,
    SOON_S,
    Odd,
    at_of,
    eventually,
    position_of,
    recalled,
    remembering,
    set_code,
    shop,
    shop_app,
)

NOT_SO_SOON_S = 0.1


def set_codes(provider, count):
    """Reload so often, one right after the other. Gives the position after each."""
    positions = []
    for number in range(count):
        set_code(provider, "a", f"N{number}")
        positions.append(position_of(provider))
    return positions


def test_each_position_of_a_burst_is_heard(following):
    provider = shop()
    with (
        serving(shop_app(provider)) as address,
        remembering(address, {"plan": "a"}) as (memory, _),
        following(memory, address) as follower,
    ):
        assert follower.wait_for(position_of(provider), SOON_S)
        positions = set_codes(provider, 50)
        assert [one for one in positions if not follower.wait_for(one, SOON_S)] == []
        assert recalled(memory, address, {"plan": "a"}) == [{"promo": "N49"}]


def test_a_position_is_heard_that_was_passed_before_the_feed_began(following):
    """The memory stood before it, and one event leads to where the server is."""
    provider = shop()
    with serving(shop_app(provider)) as address, remembering(address, {"plan": "a"}) as (memory, _):
        before = position_of(provider)
        first, second, last = set_codes(provider, 3)
        with following(memory, address) as follower:
            assert follower.wait_for(first, SOON_S)
            assert follower.wait_for(second, 0)
            assert follower.wait_for(last, 0)
            assert follower.wait_for(before, 0)


@contextlib.contextmanager
def told_by_hand(following, *events):
    """A follower of a feed that tells these, all at once, after the answer that it is at number 3."""

    async def feed(scope, receive, send):
        told = [{"to": "Aaaaaa3", "nonce": at_of(scope)}, *events]
        data = "".join(f"data: {json.dumps(one)}\n\n" for one in told)
        await answer(send, None, **FEED)
        await send({"type": "http.response.body", "body": data.encode(), "more_body": True})
        await until_gone(receive)

    with serving(Odd(feed)) as address, following(Memory(), address) as follower:
        yield follower


def moved(start, to):
    return {"from": start, "to": to, "moved": {"tables": {"t": {"changed": ["k"]}}}}


def test_events_that_come_together_are_heard_one_by_one(following):
    """So a number between them cannot stand for a position of another log."""
    with told_by_hand(following, moved("Aaaaaa3", "Bbbbbb4"), moved("Bbbbbb4", "Cccccc5")) as follower:
        assert follower.wait_for("Aaaaaa3", SOON_S)
        assert eventually(lambda: follower.wait_for("Bbbbbb4", 0))
        assert not follower.wait_for("Zzzzzz4", NOT_SO_SOON_S)


@pytest.mark.parametrize(
    ("position", "is_heard"),
    [
        ("Bbbbbb8", True),
        ("Zzzzzz8", False),
        ("Aaaaaa3", True),
        ("Zzzzzz3", False),
        ("Cccccc5", True),
        ("Cccccc9", False),
        ("Cccccc2", False),
        ("no position", False),
    ],
)
def test_only_between_two_positions_does_a_number_count(following, position, is_heard):
    """What was seen under a number is that position and no other; before the first and after the last nothing was heard."""
    with told_by_hand(following, moved("Aaaaaa3", "Bbbbbb8")) as follower:
        assert follower.wait_for("Bbbbbb8", SOON_S)
        assert follower.wait_for(position, SOON_S if is_heard else NOT_SO_SOON_S) is is_heard


def test_while_the_feed_is_not_heard_a_number_counts_for_nothing(following):
    """The server may have begun another log by now, in which the number stands for something that nobody has heard."""
    provider = shop()
    with contextlib.ExitStack() as server, contextlib.ExitStack() as others:
        address = server.enter_context(serving(shop_app(provider)))
        memory, _ = others.enter_context(remembering(address, {"plan": "a"}))
        first, _, last = set_codes(provider, 3)
        follower = others.enter_context(following(memory, address))
        assert follower.wait_for(last, SOON_S)
        assert follower.wait_for(first, SOON_S)
        server.close()
        assert eventually(lambda: isinstance(follower.state, Offline))
        assert not follower.wait_for(first, NOT_SO_SOON_S)
        assert follower.wait_for(last, 0)
        with serving(shop_app(provider), port=int(address.rpartition(":")[2])):
            assert follower.wait_for(first, SOON_S)


def test_in_another_log_numbers_count_from_where_it_was_taken_up(following):
    one, two = shop(), shop()
    with serving(shop_app(one)) as address:
        port = int(address.rpartition(":")[2])
        with remembering(address, {"plan": "a"}) as (memory, _):
            passed = set_codes(one, 3)
            follower = following(memory, address)
            with follower:
                assert follower.wait_for(passed[-1], SOON_S)
                assert follower.wait_for(passed[0], SOON_S)
    others = set_codes(two, 6)
    with serving(shop_app(two), port=port), follower:
        assert eventually(lambda: follower.state == Following())
        taken_up = position_of(two)
        assert follower.wait_for(taken_up, SOON_S)
        for before in (*passed, *others):
            assert not follower.wait_for(before, 0)
        for after in set_codes(two, 9):
            assert follower.wait_for(after, SOON_S)
