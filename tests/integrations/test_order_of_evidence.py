"""What broke plainer rules about evidence, through real servers, real memories and the transports that people use.

Each story says two things: after evidence of a change nothing stale is recalled, and nothing is dropped without need. `a` and `b` are plans
whose codes rest on one row each.
"""

import asyncio

import pytest

from shelflife.client.events import Distrusted
from shelflife.contract.positions import Position
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Signing
from shelflife.testing import serving
from tests.integrations.followers import SOON_S, recalled, remembering
from tests.integrations.lanes import ADDRESS, NONE, Lanes, Said, played

HIDDEN = {
    "lost": "lost",
    "not found": Said(404, [], b""),
    "forbidden": Said(403, [], b""),
    "unavailable": Said(503, [], b""),
    "a page": Said(200, [("content-type", "text/html")], b"<html>Hello</html>"),
}
"""What may become of questions, other than an answer."""


def number_in(position):
    return Position.from_text(position).number


@pytest.fixture(
    params=[("httpx2", "in process"), ("httpx2", "SQLite"), ("httpx", "in process"), ("httpx", "SQLite")],
    ids=", ".join,
)
def lanes(request, tmp_path):
    with Lanes(tmp_path, *request.param) as lanes:
        yield lanes


@pytest.mark.spec("11.4", "11.28")
@pytest.mark.parametrize("questions", ["at once", "lost"])
@played
async def test_a_worker_that_lags_answers_from_the_end_of_the_log(lanes, questions):
    """V1. Where questions are lost, the next request in doubt is the question."""
    lagging, current = lanes.worker(), lanes.worker()
    buyer = lanes.buyer(lagging)
    early = await buyer.sends(NONE)
    await buyer.learns("a", "b")
    current.sets(a="A1")
    assert lagging.position != current.position
    await early.served_by(current)
    buyer.wire.treats_questions = questions
    await early.arrives()
    if questions == "lost":
        assert (buyer.recalls("a"), buyer.recalls("b"), buyer.evicted) == ([], [], [])
        await buyer.calls(NONE)
    assert (buyer.recalls("a"), buyer.recalls("b")) == ([], ["B0"])
    assert buyer.evicted == [("A0", "ROW_CHANGED")]
    assert buyer.position == lagging.position == current.position


@pytest.mark.spec("11.21", "11.25")
@played
async def test_moves_of_a_former_life_do_not_lead_on(lanes):
    """V2. They begin at the position that is known after a restore."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    before = worker.position
    worker = lanes.backed_up(worker)
    buyer.wire.goes_to(worker)
    worker.sets(a="A1")
    former = (await buyer.calls("a")).said
    assert (former.at["from"], buyer.recalls("a")) == (before, ["A1"])
    buyer.wire.goes_to(lanes.restored(worker))
    await buyer.calls(NONE)
    assert (buyer.position, buyer.losses) == (before, [False])
    assert [await buyer.uses(plan) for plan in "ab"] == ["A0", "B0"]
    buyer.events.clear()
    await buyer.gets_again(former, "a")
    assert (buyer.recalls("a"), buyer.recalls("b")) == (["A0"], ["B0"])
    assert (buyer.position, buyer.evicted, buyer.losses) == (before, [], [])


@pytest.mark.spec("11.21", "11.25")
@played
async def test_a_loss_that_is_told_again_does_not_set_back(lanes):
    """V3. The same reload was made again since, so that the position is the same too."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    worker = lanes.backed_up(worker)
    buyer.wire.goes_to(worker)
    worker.sets(a="A1")
    await buyer.calls("a")
    reached = worker.position
    worker = lanes.restored(worker)
    buyer.wire.goes_to(worker)
    loss = (await buyer.calls("a")).said
    assert (loss.at["from"], loss.at["unknown"], buyer.recalls("a")) == (reached, "ahead", ["A0"])
    worker.sets(a="A1")
    await buyer.calls("a")
    assert (buyer.position, await buyer.uses("b")) == (reached, "B0")
    buyer.events.clear()
    await buyer.gets_again(loss, "a")
    assert (buyer.recalls("a"), buyer.recalls("b")) == (["A1"], ["B0"])
    assert (buyer.position, buyer.evicted, buyer.losses) == (reached, [], [])


@pytest.mark.spec("11.24")
@played
async def test_what_one_agent_has_named_counts_for_nothing_once_another_has_gone_on(lanes):
    """V4. Two agents, one memory: the loss of what this request has named is older than what the other has taken up."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    other_buyer = lanes.buyer(wire=buyer.wire)
    await buyer.learns("a", "b")
    worker.sets(a="A1")
    await buyer.calls("a")
    late = await buyer.sends("a")
    anew = lanes.worker("another.db", codes={"a": "N0", "b": "B0"})
    assert (await late.served_by(anew)).at["from"] == buyer.position
    anew.sets(a="N1")
    buyer.wire.goes_to(anew)
    await other_buyer.calls("a")
    assert (other_buyer.losses, other_buyer.recalls("a")) == ([False], ["N1"])
    buyer.events.clear()
    other_buyer.events.clear()
    await late.arrives()
    for one in (buyer, other_buyer):
        assert (one.recalls("a"), one.position, one.is_in_doubt) == (["N1"], anew.position, False)
        assert (one.evicted, one.losses) == ([], [])
    assert [await one.uses("b") for one in (buyer, other_buyer)] == ["B0", "B0"]
    assert buyer.evicted == other_buyer.evicted == []


@pytest.mark.spec("11.25")
@pytest.mark.parametrize("questions", ["at once", "lost"])
@played
async def test_a_loss_counts_also_when_it_is_told_with_a_lower_number(lanes, questions):
    """V5. It is about another position than is known, but of the same life."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    first, second = await buyer.sends("a"), await buyer.sends(NONE)
    worker.sets(a="A1")
    await first.served_by(worker)
    anew = lanes.worker("another.db", codes={"a": "N0", "b": "B0"})
    loss = await second.served_by(anew)
    buyer.wire.goes_to(anew)
    await first.arrives()
    assert (buyer.recalls("a"), buyer.recalls("b")) == (["A1"], ["B0"])
    assert (loss.at["unknown"], number_in(loss.at["to"]) < number_in(buyer.position)) == ("foreign", True)
    buyer.wire.treats_questions = questions
    await second.arrives()
    assert buyer.recalls("a") == []
    if questions == "lost":
        assert (buyer.is_in_doubt, buyer.recalls("b")) == (True, [])
        await buyer.calls(NONE)
        buyer.wire.treats_questions = "at once"
    assert (buyer.position, buyer.losses) == (anew.position, [False])
    assert [await buyer.uses(plan) for plan in "ab"] == ["N0", "B0"]
    assert buyer.evicted == [("A0", "ROW_CHANGED"), ("A1", "UNCONFIRMED")]


@pytest.mark.spec("11.28")
@played
async def test_an_answer_lifts_no_doubt_that_is_newer_than_its_question(lanes):
    """V6. It counts for what it says, and no more."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    first, second = await buyer.sends(NONE), await buyer.sends(NONE)
    await buyer.learns("a", "b")
    buyer.wire.treats_questions = "held"
    worker.sets(b="B1")
    await first.served_by(worker)
    first.deliver()
    older = await buyer.wire.questions.get()
    await older.served_by(worker)
    worker.sets(a="A1")
    await second.served_by(worker)
    second.deliver()
    newer = await buyer.wire.questions.get()
    older.deliver()
    asking_again = asyncio.create_task(buyer.wire.questions.get())
    await asyncio.wait({asking_again, first.sending}, return_when=asyncio.FIRST_COMPLETED)
    assert (buyer.held, buyer.is_in_doubt, buyer.recalls("a")) == (["A0"], True, [])
    buyer.wire.treats_questions = "at once"
    for question in (newer, await asking_again):
        await question.served_by(worker)
        question.deliver()
    await first.sending
    await second.sending
    assert (buyer.is_in_doubt, buyer.position) == (False, worker.position)
    assert sorted(buyer.evicted) == [("A0", "ROW_CHANGED"), ("B0", "ROW_CHANGED")]


@pytest.mark.spec("11.28")
@pytest.mark.parametrize("later_is_higher", [True, False])
@played
async def test_of_two_answers_across_two_new_logs_the_one_that_comes_first_counts(lanes, later_is_higher):
    """V7. Two requests in doubt are questions about the same position. What the second says is not about what the first has led to."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    await buyer.learns("a", "b")
    early = await buyer.sends(NONE)
    buyer.wire.treats_questions = "lost"
    worker.sets(b="B1")
    await buyer.calls("b")
    worker.sets(b="B2")
    await early.served_by(worker)
    await early.arrives()
    assert buyer.is_in_doubt
    first, second = await buyer.sends("a"), await buyer.sends("a")
    passing = lanes.worker("passing.db", codes={"a": "P0", "b": "B2"})
    lasting = lanes.worker("lasting.db", codes={"a": "L0", "b": "B2"})
    (lasting if later_is_higher else passing).sets(c="C1")
    await first.served_by(passing)
    await second.served_by(lasting)
    buyer.wire.goes_to(lasting)
    await second.arrives()
    assert (buyer.position, buyer.recalls("a"), buyer.losses) == (lasting.position, ["L0"], [False])
    buyer.events.clear()
    await first.arrives()
    assert buyer.recalls("a") == (["L0"] if later_is_higher else [])
    assert (buyer.is_in_doubt, buyer.evicted, buyer.losses) == (not later_is_higher, [], [])
    await buyer.calls(NONE)
    assert (buyer.position, buyer.recalls("a")) == (lasting.position, ["L0"])
    assert (buyer.evicted, buyer.losses) == ([], [])


@pytest.mark.spec("11.27")
@pytest.mark.parametrize("hidden", HIDDEN)
@played
async def test_where_no_question_is_ever_answered_requests_are(lanes, hidden):
    """V8. Else all would be withheld for ever."""
    worker = lanes.worker()
    buyer = lanes.buyer(worker)
    buyer.wire.treats_questions = HIDDEN[hidden]
    early = await buyer.sends(NONE)
    await buyer.learns("a", "b")
    worker.sets(a="A1")
    await early.served_by(worker)
    await early.arrives()
    assert (buyer.is_in_doubt, buyer.recalls("a"), buyer.recalls("b")) == (True, [], [])
    await buyer.calls(NONE)
    assert (buyer.is_in_doubt, buyer.recalls("a"), buyer.recalls("b")) == (False, [], ["B0"])
    assert (buyer.evicted, buyer.losses) == ([("A0", "ROW_CHANGED")], [])


@pytest.mark.spec("15.12")
@pytest.mark.parametrize("loss", ["another log", "set back"])
@played
async def test_with_keys_a_loss_lowers_nothing_and_withholds(lanes, loss):
    """V9. What is not believed may be true: nothing is recalled until a key vouches for something again."""
    key = SigningKey.new()
    signing = {"signing": Signing(signer=key, clock=lanes.clock)}
    worker = lanes.worker(**signing)
    pinned = {"trust": trust({ADDRESS: [key.key]})}
    buyer = lanes.buyer(worker, **pinned)
    other_buyer = lanes.buyer(wire=buyer.wire, **pinned)
    await buyer.learns("a", "b")
    worker = lanes.backed_up(worker, **signing)
    buyer.wire.goes_to(worker)
    worker.sets(a="A1")
    await buyer.calls("a")
    reached = worker.position
    assert (buyer.position, buyer.recalls("a"), buyer.recalls("b")) == (reached, ["A1"], ["B0"])
    buyer.events.clear()
    buyer.wire.goes_to(
        lanes.worker("copy of log.db", **signing)
        if loss == "set back"
        else lanes.worker("another.db", codes={"a": "N0"}, **signing)
    )
    told = (await buyer.calls(NONE)).said.at
    assert (told["from"], told["unknown"]) == (reached, "ahead")
    for one in (buyer, other_buyer):
        assert (one.recalls("a"), one.recalls("b"), one.evicted, one.losses) == ([], [], [], [])
    assert (len(buyer.of(Distrusted)), buyer.held) == (1, ["A1", "B0"])
    lanes.clock.now += 300
    assert [await buyer.uses(plan) for plan in "ab"] == [None, None]
    buyer.wire.goes_to(worker)
    lanes.clock.now += 300
    await buyer.calls(NONE)
    assert (buyer.position, buyer.recalls("a"), buyer.recalls("b")) == (reached, ["A1"], ["B0"])
    assert (buyer.evicted, buyer.losses) == ([], [])


@pytest.mark.spec("13.9")
def test_a_follower_of_a_worker_that_lags_hears_the_end_of_the_log(tmp_path, following):
    """V1, by the feed: to connect is a question too."""
    with Lanes(tmp_path) as lanes:
        lagging, current = lanes.worker(), lanes.worker()
        with (
            serving(lagging.app, lifespan="off") as address,
            remembering(address, {"plan": "a"}, {"plan": "b"}) as (memory, _),
        ):
            current.sets(a="A1")
            assert lagging.position != current.position
            with following(memory, address) as follower:
                assert follower.wait_for(current.position, SOON_S)
            known = [recalled(memory, address, {"plan": plan}) for plan in "ab"]
            assert known == [[{"promo": "A1"}], [{"promo": "B0"}]]
