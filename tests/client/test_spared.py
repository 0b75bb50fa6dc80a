"""What a tool has spared, where its outcome says nothing of the contract: whether that is known at all."""

import asyncio
from contextlib import suppress

import httpx2
import pytest

from shelflife.client import Memory, Tools
from tests.client.tool_results import ROOT, Result, refusal


class Unread:
    """A response of a client that is not known."""

    status = 500


class Trap:
    """Whatever it is asked, it fails."""

    @property
    def status(self):
        raise RuntimeError


def spared_by(outcome, root=ROOT):
    """What a memory counts as spared when a tool ends so that has remembered values in its arguments, and was refused and mended before."""
    outcomes = [refusal(), "made", outcome]

    def subscribe(plan, promo_code=None):
        made = outcomes.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    memory = Memory()
    tool = memory.tool(root, ask=lambda question: None)(subscribe)
    tool("growth")
    tool("growth", "S1")
    assert (memory.statistics.applied, memory.statistics.saved) == (0, 0)
    with suppress(RuntimeError):
        tool("growth")
    assert memory.statistics.applied == 1
    return memory.statistics.saved


ACCEPTED = ["made", {"made": 1}, [1], None, Result([{"text": "made"}]), Result([], meta={"other": 1})]


@pytest.mark.parametrize("outcome", ACCEPTED, ids=lambda one: type(one).__name__)
def test_a_tool_that_returns_and_shows_no_failure_counts_as_accepted(outcome):
    assert spared_by(outcome) == 1


def nothing_yet():
    yield


NOT_KNOWN = [RuntimeError("down"), Result([], is_error=True), Unread(), Trap(), nothing_yet()]


@pytest.mark.parametrize("outcome", NOT_KNOWN, ids=lambda one: type(one).__name__)
def test_what_has_failed_or_does_not_tell_is_not_counted(outcome):
    assert spared_by(outcome) == 0


@pytest.mark.parametrize(("root", "is_known"), [("http://own:1", True), ("http://other:1", False)])
def test_the_response_of_another_server_is_not_counted(root, is_known):
    request = httpx2.Request("POST", "http://own:1/x")
    assert spared_by(httpx2.Response(200, content=b"{}", request=request), root) == is_known


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("outcome", ["made", {"made": 1}], ids=["text", "dictionary"])
def test_it_is_so_too_where_somebody_else_runs_the_tool(outcome, is_error):
    memory = Memory()
    tools = Tools(memory, ROOT)

    async def used(outcome, *, is_error=False, **mended):
        use = await tools.begin("subscribe", {"plan": "growth", **mended})
        await tools.end(use, outcome, is_error=is_error)

    asyncio.run(used(refusal()))
    asyncio.run(used("made", promo_code="S1"))
    asyncio.run(used(outcome, is_error=is_error))
    assert (memory.statistics.applied, memory.statistics.saved) == (1, int(not is_error))
