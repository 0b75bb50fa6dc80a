"""What a program hands to a memory in the wrong place, or of the wrong kind: told at once, in one sentence."""

import asyncio

import pytest

from shelflife.client import Call, Forecast, Guard, Memory, Reply, Tools, exchange, exchange_async
from shelflife.integrations import httpx, httpx2
from shelflife.integrations.requests import MemoryAdapter
from tests.client.responses import rejection, said

CALL = Call("http://h", "POST /x", {})


def told(make):
    with pytest.raises(TypeError) as raised:
        make()
    return str(raised.value)


@pytest.mark.parametrize("made", [exchange, lambda *given: asyncio.run(exchange_async(*given))])
@pytest.mark.parametrize(
    "given", [(CALL, Memory(), print), (Memory(), CALL, "no function"), (print, CALL, Memory())]
)
def test_an_exchange_in_the_wrong_order_is_told(made, given):
    kinds = ", ".join(type(one).__name__ for one in given)
    sentence = "an exchange takes a Memory, a Call and a function that answers, and not"
    assert told(lambda: made(*given)) == f"{sentence} {kinds}"


@pytest.mark.parametrize("made", [exchange, lambda *given: asyncio.run(exchange_async(*given))])
def test_an_answer_that_is_no_reply_is_told(made):
    sentence = "what answers returns Reply(status, body, headers), or None, and not dict"
    assert told(lambda: made(Memory(), CALL, lambda step: {"status": 200})) == sentence


def test_an_answer_to_a_question_that_is_no_reply_counts_as_none_and_is_told_in_the_log(caplog):
    memory = Memory(ask=lambda question: {"status": 200})
    memory.observe(said(rejection()))
    memory.refresh("http://h")
    assert "what answers returns Reply(status, body, headers), or None, and not dict" in caplog.text


@pytest.mark.parametrize("foresight", [True, Forecast, "forecast"])
def test_a_foresight_that_is_none_is_told(foresight):
    sentence = "foresight is a Forecast(), or has an is_due as that has, and is not"
    assert told(lambda: Memory(foresight=foresight)) == f"{sentence} {foresight!r}"


@pytest.mark.parametrize("verb", ["recall", "amend", "why"])
@pytest.mark.parametrize("request_", ["{}", b"{}", [], None])
def test_a_request_that_is_no_mapping_is_told(verb, request_):
    sentence = "the fields of a request are a mapping, as in {'plan': 'basic'}, and not"
    kind = type(request_).__name__
    assert told(lambda: getattr(Memory(), verb)("http://h", "POST /x", request_)) == f"{sentence} {kind}"


def test_tools_in_the_wrong_order_are_told():
    sentence = "tools take a Memory first, then a root, as in Tools(memory, root); guard= is a Guard or None"
    assert told(lambda: Tools("http://h", Memory())) == sentence


def test_a_guard_where_an_adapter_belongs_is_told():
    assert told(lambda: MemoryAdapter(Memory(), Guard())) == (
        "a MemoryAdapter takes a Memory and an adapter to watch, and not shelflife.client.guard.Guard"
    )


def test_a_reply_of_a_class_below_reply_is_one():
    class Own(Reply):
        pass

    assert exchange(Memory(), CALL, lambda step: Own(200, b"{}")).status == 200


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize(
    ("name", "sends_by"),
    [("MemoryTransport", "handle_request"), ("AsyncMemoryTransport", "handle_async_request")],
)
def test_what_is_handed_to_a_transport_in_the_wrong_place_is_told(library, name, sends_by):
    kind = getattr(library, name)
    for made in (kind, lambda: kind(guard=Guard())):
        assert told(made) == f"a transport takes a Memory, as in {name}(Memory())"
    assert told(lambda: kind(Memory(), Guard())) == (
        f"after the Memory comes the transport to watch, which has a {sends_by}, and not Guard;"
        " a guard is given by name: guard="
    )
