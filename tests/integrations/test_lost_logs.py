"""Logs that are lost: several behind one address, restarts without a file, and copies that were put back and overtaken."""

import json

import pytest

from tests.integrations.lanes import NONE, Lanes, played


@pytest.fixture(
    params=[("httpx2", "in process"), ("httpx2", "SQLite"), ("httpx", "in process"), ("httpx", "SQLite")],
    ids=", ".join,
)
def lanes(request, tmp_path):
    with Lanes(tmp_path, *request.param) as lanes:
        yield lanes


def two_logs(lanes):
    """Workers of which each has a log of its own."""
    return lanes.worker("one.db"), lanes.worker("two.db", codes={"a": "A9", "b": "B0"})


def go_on(number, *workers):
    """Something changes on which no fix rests."""
    for worker in workers:
        worker.sets(c=f"C{number} of {worker.position}")


async def using(buyer, plan):
    """What is sent for a plan: the questions, and the code in the request."""
    first = len(buyer.wire.parcels)
    promo = await buyer.uses(plan)
    sent = buyer.wire.parcels[first:]
    return [parcel for parcel in sent if parcel.is_question], promo


def told_in(question):
    """The codes that the answer about a suspect gives."""
    feedback = json.loads(question.said.body)["recovery_feedback"]
    return [one["parameters"]["promo"] for one in feedback["suggestions"]]


@pytest.mark.spec("11.30")
@pytest.mark.parametrize("are_moving", [False, True])
@played
async def test_where_two_logs_answer_that_is_told_and_each_use_is_confirmed_just_before(lanes, are_moving):
    one, two = two_logs(lanes)
    buyer = lanes.buyer(one, two)

    async def once(number):
        go_on(number, *((one, two) if are_moving else ()))
        lanes.clock.now += 1
        return await using(buyer, "a")

    for number in range(5 if are_moving else 3):
        assert True not in buyer.losses
        await once(number)
    assert buyer.losses == ([False] * 3 if are_moving else [False]) + [True]
    for number in range(5, 11):
        asked, promo = await once(number)
        assert [question.path for question in asked] == ["/contract/fixes"]
        assert told_in(asked[0]) == [promo]
    lanes.clock.now += 600
    buyer.wire.goes_to(one)
    await using(buyer, "a")
    assert await using(buyer, "a") == ([], "A0")


@pytest.mark.spec("11.30")
@pytest.mark.parametrize(("left_s", "several"), [(599, True), (600, False)])
@played
async def test_a_log_that_comes_back_after_ten_minutes_was_put_back(lanes, left_s, several):
    one, two = two_logs(lanes)
    buyer = lanes.buyer(one)
    await buyer.learns("a")
    buyer.wire.goes_to(two)
    await buyer.calls(NONE)
    lanes.clock.now += left_s
    buyer.wire.goes_to(one)
    await buyer.calls(NONE)
    assert buyer.losses == [False, several]
    asked_counts = [len((await using(buyer, "a"))[0]) for _ in range(3)]
    assert asked_counts == ([1, 1, 1] if several else [1, 0, 0])


@pytest.mark.spec("11.30")
@pytest.mark.parametrize(("pause_s", "fourth"), [(199, True), (200, False)])
@played
async def test_four_losses_within_ten_minutes_are_of_several_logs(lanes, pause_s, fourth):
    one, two = two_logs(lanes)
    buyer = lanes.buyer(one, two)
    await buyer.calls(NONE)
    for number in range(4):
        lanes.clock.now += pause_s
        go_on(number, one, two)
        await buyer.calls(NONE)
    assert buyer.losses == [False, False, False, fourth]


@pytest.mark.spec("11.26")
@pytest.mark.parametrize("log", [None, "another.db"])
@played
async def test_after_a_start_with_another_log_each_fix_costs_one_question_and_no_failed_request(lanes, log):
    buyer = lanes.buyer(lanes.worker(None))
    await buyer.learns("a", "b")
    buyer.wire.goes_to(lanes.worker(log, codes={"a": "N0", "b": "B0"}))
    await buyer.calls(NONE)
    assert (buyer.losses, buyer.recalls("a"), buyer.recalls("b")) == ([False], [], [])
    assert (buyer.held, buyer.evicted) == (["A0", "B0"], [])
    first = len(buyer.wire.parcels)
    assert [await buyer.uses(plan) for plan in "abab"] == ["N0", "B0", "N0", "B0"]
    assert buyer.evicted == [("A0", "UNCONFIRMED")]
    sent = buyer.wire.parcels[first:]
    assert [parcel.said.status for parcel in sent if not parcel.is_question] == [200] * 4
    assert [parcel.path for parcel in sent if parcel.is_question] == ["/contract/fixes"] * 2


@pytest.mark.parametrize("comes", ["before the new log is known", "after"])
@played
async def test_a_reply_that_is_under_way_across_a_restart_misleads_nobody_for_long(lanes, comes):
    worker = lanes.worker(None)
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    late = await buyer.sends("a")
    worker.sets(a="A1")
    await late.served_by(worker)
    anew = lanes.worker(None)
    buyer.wire.goes_to(anew)
    if comes == "after":
        await buyer.calls(NONE)
        assert [await buyer.uses(plan) for plan in "ab"] == ["A0", "B0"]
        buyer.events.clear()
        await late.arrives()
        assert (buyer.recalls("a"), buyer.recalls("b")) == (["A0"], ["B0"])
        assert (buyer.position, buyer.evicted, buyer.losses) == (anew.position, [], [])
        return
    await late.arrives()
    assert buyer.recalls("a") == ["A1"]  # nobody has said yet that this has passed
    await buyer.calls(NONE)
    assert (buyer.position, buyer.recalls("a"), buyer.losses) == (anew.position, [], [False])
    assert [await buyer.uses(plan) for plan in "ab"] == ["A0", "B0"]


@pytest.mark.spec("11.24", "11.26")
@pytest.mark.parametrize(
    ("since_then", "unknown"),
    [
        ((), "ahead"),
        (("R1",), "ahead"),
        (("R1", "R2"), "foreign"),
        (("A1", "R2"), "foreign"),
        (("R1", "R2", "R3"), "foreign"),
        (("A1", "R2", "A2"), "foreign"),
    ],
)
@played
async def test_a_copy_that_was_put_back_is_found_out_also_when_it_has_been_overtaken(
    lanes, since_then, unknown
):
    """By the first reply, whether the log is shorter now, as long, or longer."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    worker = lanes.backed_up(worker)
    buyer.wire.goes_to(worker)
    worker.sets(a="A1")
    worker.sets(a="A2")
    await buyer.calls("a")
    assert (buyer.recalls("a"), buyer.recalls("b")) == (["A2"], ["B0"])
    worker = lanes.restored(worker)
    buyer.wire.goes_to(worker)
    for code in since_then:
        worker.sets(a=code)
    told = (await buyer.calls(NONE)).said.at
    assert (told["unknown"], buyer.losses, buyer.position) == (unknown, [False], worker.position)
    assert (buyer.recalls("a"), buyer.recalls("b"), buyer.held) == ([], [], ["A2", "B0"])
    buyer.events.clear()
    assert [await buyer.uses(plan) for plan in "ab"] == [(*since_then, "A0")[len(since_then) - 1], "B0"]
    went = [] if since_then[-1:] == ("A2",) else [("A2", "UNCONFIRMED")]
    assert buyer.evicted == went


@played
async def test_a_copy_that_has_gone_the_same_way_again_is_the_same_log(lanes):
    """Not a fix is lost, for none is stale."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    worker = lanes.backed_up(worker)
    buyer.wire.goes_to(worker)
    worker.sets(a="A1")
    await buyer.calls("a")
    worker = lanes.restored(worker)
    buyer.wire.goes_to(worker)
    worker.sets(a="A1")
    await buyer.calls(NONE)
    assert (buyer.recalls("a"), buyer.recalls("b")) == (["A1"], ["B0"])
    assert (buyer.position, buyer.losses) == (worker.position, [])


@pytest.mark.parametrize("since_then", [(), ("R1",)])
@played
async def test_a_reply_that_is_under_way_across_a_restore_misleads_until_the_next_one(lanes, since_then):
    """That it is taken for a new one stays open; that the next reply finds it out is promised."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    worker = lanes.backed_up(worker)
    late = await buyer.sends("a")
    worker.sets(a="A1")
    await late.served_by(worker)
    worker = lanes.restored(worker)
    buyer.wire.goes_to(worker)
    for code in since_then:
        worker.sets(a=code)
    await late.arrives()
    await buyer.calls(NONE)
    assert (buyer.position, buyer.losses, buyer.recalls("a")) == (worker.position, [False], [])
    assert [await buyer.uses(plan) for plan in "ab"] == [(*since_then, "A0")[0], "B0"]
