"""Tools behind a memory: plain functions, and the core that the adapters of frameworks stand on, against a real server."""

import asyncio
import threading
from contextlib import closing
from functools import partial

import httpx2
import pytest
import requests

from shelflife.client import Memory, Tools, contract_headers
from shelflife.client.events import Evicted, Refused, Stored
from shelflife.client.tooling import Takes
from shelflife.contract.envelopes import META_KEY, Envelope
from tests.acme_world import FREE, GOVERNED, bump
from tests.agents.billing import NEW_CODE, OLD_CODE, OPERATION, billing
from tests.client.tool_results import Result

ROOT = "tool://billing"


@pytest.fixture
def server():
    with billing() as server:
        yield server


def played(server, subscribe, request=GOVERNED):
    """An episode: the tool is called, and once more as a model would when it has read the fix. Tells how often the server was asked."""
    before = len(server.seen)
    try:
        subscribe(**request)
    except httpx2.HTTPStatusError as error:
        [suggestion] = error.response.json()["recovery_feedback"]["suggestions"]
        subscribe(**{**request, **suggestion["parameters"]})
    return len(server.seen) - before


def test_a_function_is_called_with_what_was_learned_and_anew_after_a_change(server):
    memory = Memory()
    subscribe = memory.tool(ROOT)(server.subscribe)
    counts = [played(server, subscribe) for _ in range(2)]
    server.rotate()
    assert counts + [played(server, subscribe) for _ in range(2)] == [2, 1, 2, 1]
    assert server.seen[-1][0]["promo_code"] == NEW_CODE


def test_an_async_function_does_the_same(server):
    subscribe = Memory().tool(ROOT)(server.subscribe_async)

    async def twice():
        with pytest.raises(httpx2.HTTPStatusError):
            await subscribe(**GOVERNED)
        return await subscribe(**GOVERNED)

    made = asyncio.run(twice())
    assert (made["subscription"]["promo_code"], server.statuses) == (OLD_CODE, [422, 201])


def test_what_a_success_says_evicts_what_has_gone_stale_and_no_more(server):
    happened = []
    memory = Memory(on_event=happened.append, ask=server.ask)
    subscribe = memory.tool(server.address, operation=OPERATION)(server.subscribe)
    with pytest.raises(httpx2.HTTPStatusError):
        subscribe(**GOVERNED)
    bump(server.provider)
    subscribe(**FREE)
    assert not [event for event in happened if isinstance(event, Evicted)]
    server.rotate()
    subscribe(**FREE)  # another request, which nothing is wrong with, tells of it
    [gone] = [event.entry.parameters for event in happened if isinstance(event, Evicted)]
    assert gone == {"promo_code": OLD_CODE}


def test_the_error_of_a_refusal_is_the_very_one_that_the_function_raised(server):
    raised = []

    @Memory().tool(ROOT)
    def subscribe(**wanted):
        try:
            return server.subscribe(**wanted)
        except Exception as error:
            raised.append(error)
            raise

    with pytest.raises(httpx2.HTTPStatusError) as caught:
        subscribe(**GOVERNED)
    assert caught.value is raised[0]


def test_a_decorator_without_its_root_is_refused_at_once():
    with pytest.raises(TypeError, match=r'needs a name: @memory.tool\("tool://billing"\)'):

        @Memory().tool
        def subscribe(plan):
            pass


@pytest.mark.parametrize("error", [KeyError("no such plan"), StopIteration("no more"), SystemExit(3)])
def test_a_function_that_fails_otherwise_fails_as_it_would(error):
    memory = Memory()

    @memory.tool(ROOT)
    def subscribe(plan):
        raise error

    with pytest.raises(type(error)) as caught:
        subscribe(plan="growth")
    assert caught.value is error
    assert caught.value.args == error.args
    assert memory.statistics.stored == 0


def test_a_stale_precondition_is_mended_without_the_model(server):
    memory = Memory()
    subscribe = memory.tool(server.address, operation=OPERATION, conditional=True, ask=server.ask)(
        server.subscribe
    )
    assert played(server, subscribe) == 2
    server.rotate()
    made = subscribe(**GOVERNED)
    assert made["subscription"]["promo_code"] == NEW_CODE
    assert server.statuses == [422, 201, 412, 201]


def test_a_precondition_is_mended_in_an_event_loop_too(server):
    tools = Tools(
        Memory(),
        server.address,
        operations={"subscribe_async": OPERATION},
        conditional=True,
        ask=server.ask_async,
    )
    subscribe = tools.wrap(server.subscribe_async)

    async def episodes():
        with pytest.raises(httpx2.HTTPStatusError):
            await subscribe(**GOVERNED)
        await subscribe(**GOVERNED)
        server.rotate()
        return await subscribe(**GOVERNED)

    made = asyncio.run(episodes())
    assert made["subscription"]["promo_code"] == NEW_CODE
    assert server.statuses == [422, 201, 412, 201]


def test_outside_of_a_tool_there_are_no_headers_to_send(server):
    subscribe = Memory().tool(ROOT)(server.subscribe)
    with pytest.raises(httpx2.HTTPStatusError):
        subscribe(**GOVERNED)
    [(_, headers, _)] = server.seen
    assert not [name for name in headers if name.startswith("contract-")]
    assert contract_headers() == {}


def test_an_error_that_is_only_text_teaches_and_is_shown_without_the_contract(server):
    subscribe = Memory().tool(ROOT)(server.subscribe_in_words)
    with pytest.raises(RuntimeError) as caught:
        subscribe(**GOVERNED)
    assert str(caught.value) == "The subscription was refused."
    assert subscribe(**GOVERNED) == "The subscription was made."


def test_the_end_of_a_text_that_is_no_error_teaches_nothing():
    """Whoever wrote the page that a tool has fetched could else put what they like into requests."""
    memory = Memory()
    page = Envelope(422, {"table_versions": {}, "recovery_feedback": {"suggestions": []}}).trailing("A page")

    @memory.tool(ROOT)
    def fetch(url: str) -> str:
        return page

    assert fetch("http://x") == page
    assert memory.store.known(ROOT).revision == 0


def test_a_body_that_a_tool_hands_on_as_it_is_teaches(server):
    memory = Memory()

    @memory.tool(ROOT)
    def subscribe(**wanted):
        return server.http.post("/subscriptions", json=wanted).text

    assert "recovery_feedback" in subscribe(**GOVERNED)
    subscribe(**GOVERNED)
    assert server.statuses == [422, 201]


def test_a_response_that_a_tool_hands_on_teaches(server):
    @Memory().tool(ROOT)
    def subscribe(**wanted):
        return server.http.post("/subscriptions", json=wanted)

    assert [subscribe(**GOVERNED).status_code for _ in range(2)] == [422, 201]


def test_an_error_that_wraps_that_of_the_http_client_teaches_too(server):
    @Memory().tool(ROOT)
    def subscribe(**wanted):
        try:
            return server.subscribe(**wanted)
        except httpx2.HTTPStatusError as error:
            raise RuntimeError("it was refused") from error

    with pytest.raises(RuntimeError, match="it was refused"):
        subscribe(**GOVERNED)
    subscribe(**GOVERNED)
    assert server.statuses == [422, 201]


def test_an_error_that_was_only_dealt_with_at_the_time_teaches_nothing(server):
    """It may be one of another server."""
    memory = Memory()

    @memory.tool("tool://elsewhere")
    def subscribe(**wanted):
        try:
            httpx2.post(f"{server.address}/subscriptions", json=wanted).raise_for_status()
        except httpx2.HTTPStatusError:
            raise RuntimeError("something else")  # noqa: B904

    with pytest.raises(RuntimeError):
        subscribe(**GOVERNED)
    assert list(memory.store.entries()) == []


def test_a_response_whose_body_is_still_to_come_is_left_to_whoever_reads_it(server):
    memory = Memory()

    @memory.tool("tool://elsewhere")
    def subscribe(**wanted):
        return requests.post(f"{server.address}/subscriptions", json=wanted, stream=True, timeout=60)

    with subscribe(**GOVERNED) as response:
        assert response.raw.read(1) == b"{"
    assert list(memory.store.entries()) == []


def test_a_fix_that_a_function_has_no_argument_for_is_refused(server):
    happened = []
    memory = Memory(on_event=happened.append)

    @memory.tool(ROOT)
    def subscribe(customer, plan, amount, currency, payment_method_token):
        return server.subscribe(
            customer=customer,
            plan=plan,
            amount=amount,
            currency=currency,
            payment_method_token=payment_method_token,
        )

    for _ in range(2):
        with pytest.raises(httpx2.HTTPStatusError):
            subscribe(**GOVERNED)
    [refused] = [event for event in happened if isinstance(event, Refused)]
    assert refused.why == "'promo_code' is not among the arguments of the tool"


def test_arguments_may_be_given_in_any_way(server):
    @Memory().tool(ROOT)
    def subscribe(customer, /, plan, amount=100, *rest, promo_code=None, **more):
        wanted = {"customer": customer, "plan": plan, "amount": amount, **more}
        return rest, server.subscribe(**wanted, promo_code=promo_code)

    more = {name: GOVERNED[name] for name in ("currency", "payment_method_token")}
    with pytest.raises(httpx2.HTTPStatusError):
        subscribe("cus_1", "plan_partner_growth", **more)
    by_place = subscribe("cus_2", "plan_partner_growth", 200, 1, 2, **more)
    by_name = subscribe("cus_3", plan="plan_partner_growth", **more)
    assert [rest for rest, _ in (by_place, by_name)] == [(1, 2), ()]
    assert [body["promo_code"] for body, _, _ in server.seen] == [None, OLD_CODE, OLD_CODE]
    assert [body["amount"] for body, _, _ in server.seen] == [100, 200, 100]


@pytest.mark.parametrize("operation", [None, OPERATION])
def test_a_function_whose_arguments_are_partly_set_is_a_tool_with_all_of_them(server, operation):
    def subscribe(customer, plan, amount, currency, payment_method_token, promo_code=None):
        given = {name: value for name, value in locals().items() if name != "server" and value is not None}
        return server.subscribe(**given)

    first, *rest = GOVERNED
    preset = partial(subscribe, GOVERNED[first], plan=GOVERNED["plan"])
    tool = Memory().tool(ROOT, operation=operation)(preset)
    left = {name: GOVERNED[name] for name in rest if name != "plan"}
    with pytest.raises(httpx2.HTTPStatusError):
        tool(**left)
    assert tool(**left)["subscription"]["promo_code"] == OLD_CODE


def test_an_argument_that_json_cannot_carry_is_told_once(server, caplog):
    tool = Memory().tool(ROOT)(lambda context, plan: server.statuses)
    for _ in range(2):
        assert tool(object(), plan="x") == []
    assert [record.getMessage() for record in caplog.records] == [
        "nothing is remembered for calls of the tool '<lambda>': JSON cannot carry its argument 'context'"
    ]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_in_an_argument_reaches_the_tool(server, text):
    given = []
    tools = Tools(Memory(), server.address, operations={"note": OPERATION})
    tools.call("note", {"text": text}, lambda arguments, _: given.append(arguments))
    assert given == [{"text": text}]


def test_what_a_function_takes_by_default_is_part_of_the_request(server):
    @Memory().tool(ROOT)
    def subscribe(promo_code=None, plan="plan_partner_growth", **more):
        return server.subscribe(**{**GOVERNED, **more, "plan": plan, "promo_code": promo_code})

    with pytest.raises(httpx2.HTTPStatusError):
        subscribe()
    assert subscribe()["subscription"]["promo_code"] == OLD_CODE


def test_a_method_is_a_tool_like_any_function(server):
    memory = Memory()

    class Desk:
        @memory.tool(ROOT)
        def subscribe(self, plan, promo_code=None, currency="usd"):
            return server.subscribe(
                **{**GOVERNED, "plan": plan, "promo_code": promo_code, "currency": currency}
            )

    with pytest.raises(httpx2.HTTPStatusError):
        Desk().subscribe("plan_partner_growth")
    made = Desk().subscribe("plan_partner_growth")
    assert made["subscription"]["promo_code"] == OLD_CODE


def test_arguments_that_do_not_fit_are_told_by_the_function_itself():
    @Memory().tool(ROOT)
    def subscribe(plan):
        return plan

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'plan'"):
        subscribe()


def test_threads_may_use_a_tool_at_once(server):
    subscribe = Memory().tool(ROOT)(server.subscribe)
    played(server, subscribe)
    together = [threading.Thread(target=subscribe, kwargs=GOVERNED) for _ in range(8)]
    for one in together:
        one.start()
    for one in together:
        one.join()
    assert server.statuses == [422, 201] + [201] * 8


def test_a_tool_that_is_cancelled_leaves_the_memory_as_it_was(server):
    memory = Memory()

    async def cancelled():
        begun = asyncio.Event()

        @memory.tool(ROOT)
        async def subscribe(**wanted):
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(subscribe(**GOVERNED))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = memory.tool(ROOT, operation="CALL /subscribe")(server.subscribe_async)
        with pytest.raises(httpx2.HTTPStatusError):
            await again(**GOVERNED)
        await again(**GOVERNED)

    asyncio.run(cancelled())
    assert server.statuses == [422, 201]


def test_a_tool_of_another_server_is_left_alone(server):
    memory = Memory()
    tools = Tools(memory, ROOT, only=["subscribe"])
    called = []
    assert tools.call("weather", {"city": "Oslo"}, lambda given, _: called.append(given)) is None
    use = asyncio.run(tools.begin("weather", {"city": "Oslo"}))
    assert asyncio.run(tools.end(use, "rain")) == "rain"
    assert (called, use.arguments) == ([{"city": "Oslo"}], {"city": "Oslo"})
    assert memory.statistics.misses == 0


def test_a_tool_may_be_an_operation_of_another_name_and_all_others_have_their_own():
    tools = Tools(Memory(), ROOT, only={"subscribe", "cancel"}, operations={"subscribe": OPERATION})
    assert [tools.operation_of(name) for name in ("subscribe", "cancel", "weather")] == [
        OPERATION,
        "CALL /cancel",
        None,
    ]
    assert Tools(Memory(), ROOT, operations={"subscribe": OPERATION}).operation_of("cancel") == "CALL /cancel"


def test_the_names_of_tools_are_no_single_text():
    with pytest.raises(TypeError, match=r"only takes the names of tools, as in \['subscribe'\]"):
        Tools(Memory(), ROOT, only="subscribe")


def refusal(server):
    response = server.http.post("/subscriptions", json=GOVERNED)
    return Envelope(response.status_code, response.json())


def test_somebody_else_may_run_the_tool_between_two_halves(server):
    tools = Tools(Memory(), ROOT)

    async def used(outcome, **settings):
        use = await tools.begin("subscribe", GOVERNED)
        return use.arguments, await tools.end(use, outcome, **settings)

    told = refusal(server).trailing("It was refused.")
    given, shown = asyncio.run(used(told, is_error=True))
    assert (given, shown) == (GOVERNED, "It was refused.")
    given, shown = asyncio.run(used("It was made."))
    assert (given["promo_code"], shown) == (OLD_CODE, "It was made.")


def test_a_memory_on_another_machine_does_not_hold_the_event_loop_up(server, valkey_url):
    with closing(Memory.at(valkey_url)) as memory:
        tools = Tools(memory, ROOT, ask=server.ask)
        subscribe = tools.wrap(server.subscribe_async, "subscribe")

        async def episodes():
            with pytest.raises(httpx2.HTTPStatusError):
                await subscribe(**GOVERNED)
            use = await tools.begin("subscribe", GOVERNED)
            await tools.end(use, "It was made.")
            return use.arguments

        assert asyncio.run(episodes())["promo_code"] == OLD_CODE
        assert tools.wrap(server.subscribe)(**GOVERNED)["subscription"]["promo_code"] == OLD_CODE


def test_a_use_that_is_never_ended_teaches_nothing(server):
    memory = Memory()
    tools = Tools(memory, ROOT)
    asyncio.run(tools.begin("subscribe", GOVERNED))
    assert memory.statistics.stored == 0
    assert asyncio.run(tools.begin("subscribe", GOVERNED)).arguments == GOVERNED


@pytest.mark.parametrize("where", ["meta", "text", "both"])
def test_the_result_of_an_mcp_tool_teaches_by_its_metadata_or_its_text(server, where):
    tools, told = Tools(Memory(), "mcp://billing"), refusal(server)
    text = "It was refused." if where == "meta" else told.trailing("It was refused.")
    result = Result([{"type": "text", "text": text}], True, None if where == "text" else told.as_meta)
    shown = tools.call("subscribe", GOVERNED, lambda given, _: result)
    assert shown.content == [{"type": "text", "text": "It was refused."}]
    assert tools.call("subscribe", GOVERNED, lambda given, _: given)["promo_code"] == OLD_CODE


def test_the_headers_of_a_request_go_where_the_channel_takes_them(server):
    seen = []
    tools = Tools(Memory(), "mcp://billing", compact=True)

    async def run(given, headers):
        seen.append(headers)
        return Result([], meta={META_KEY: {"status": 200}})

    asyncio.run(tools.call_async("subscribe", GOVERNED, run))
    assert list(seen[0]) == ["Contract-At"]


def test_an_outcome_that_cannot_be_looked_at_goes_past_the_memory(caplog):
    class Odd:
        @property
        def content(self):
            raise LookupError("not now")

    odd = Odd()
    assert Tools(Memory(), ROOT).call("x", {}, lambda given, _: odd) is odd
    assert "goes past the memory" in caplog.text


def test_a_memory_that_only_learns_writes_nothing_into_arguments(server):
    happened = []
    subscribe = Memory(on_event=happened.append).tool(ROOT, guard=None)(server.subscribe)
    for _ in range(2):
        with pytest.raises(httpx2.HTTPStatusError):
            subscribe(**GOVERNED)
    assert [type(event) for event in happened] == [Stored]


def test_a_tool_that_is_not_async_has_nobody_async_to_answer():
    ran = []

    async def ask(question):
        return None

    subscribe = Memory(ask=ask).tool(ROOT)(lambda **wanted: ran.append(wanted))
    with pytest.raises(TypeError, match="what answers is async: a tool that is not cannot wait for it"):
        subscribe(plan="growth")
    assert ran == []


@pytest.mark.parametrize("wrong", [("memory", None), (Memory(), "guard")])
def test_what_tools_cannot_be_made_of_is_told_at_once(wrong):
    memory, guard = wrong
    with pytest.raises(TypeError, match="tools take a Memory first, then a root, as in"):
        Tools(memory, ROOT, guard=guard)


def test_a_root_that_is_none_is_told_at_once():
    with pytest.raises(ValueError, match="is not the URL of a server"):
        Memory().tool("billing")(print)


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        (None, Takes()),
        ({"type": "object"}, Takes()),
        (
            {"properties": {"plan": {}, "seats": {"default": 1}}},
            Takes(frozenset({"plan", "seats"}), {"seats": 1}),
        ),
        ({"properties": {"plan": {}}, "additionalProperties": True}, Takes(None, {})),
    ],
)
def test_what_a_tool_takes_is_read_from_its_schema(schema, takes):
    assert Takes.from_schema(schema) == takes


def test_what_a_tool_fills_in_itself_counts_and_is_left_to_it():
    given = []
    Tools(Memory(), ROOT).call(
        "x", {"plan": "growth"}, lambda now, _: given.append(now), Takes(defaults={"seats": 1})
    )
    assert given == [{"plan": "growth"}]


def test_a_fix_that_takes_an_argument_away_or_changes_only_its_type_is_carried_out():
    feedback = {
        "type": "CORRECT",
        "parameters": {"code": None, "flag": True},
        "cache_hint": "cacheable",
        "table": "codes",
        "when": {"plan": "growth"},
        "unless": {},
        "cells": {"codes": {"growth": ["code"]}},
        "rows": ["codes:growth"],
        "rules": [],
        "tables": [{"table": "codes", "version": "1"}],
    }
    refusal = {
        "success": False,
        "recovery_feedback": {"suggestions": [feedback]},
        "table_versions": {"codes": "1"},
    }
    memory, given = Memory(), []

    @memory.tool(ROOT)
    def order(plan, code="none", flag=1):
        given.append((plan, code, flag))
        return refusal

    order("growth", "OLD", flag=1)
    order("growth", "OLD", flag=1)
    order("growth")
    assert given[0] == ("growth", "OLD", 1)
    assert [(plan, code, repr(flag)) for plan, code, flag in given[1:]] == [("growth", "none", "True")] * 2
