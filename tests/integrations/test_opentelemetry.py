"""OpenTelemetry, with its real SDK: what a memory and a provider tell, and that the context of a trace goes along."""

import asyncio
import gc
import threading
from typing import NamedTuple

import httpx2
import pytest
from fastapi import FastAPI
from opentelemetry import propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, url_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.apis.acme.app import EXAMPLE
from shelflife.client import Exchange, Guard, Memory, Reply
from shelflife.client.asking import Question, driven
from shelflife.integrations.httpx2 import AsyncMemoryTransport, MemoryTransport
from shelflife.integrations.opentelemetry import instrument
from shelflife.integrations.telemetry import Sources
from shelflife.testing import serving
from tests.processes import wait_until

CODE = "active_csm_codes"


class Telemetry:
    """An SDK whose spans and metrics can be looked at."""

    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider([self.reader])
        self.tracer = self.tracer_provider.get_tracer("the program")

    def instrument(self, what):
        instrument(what, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider)
        return what

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def events(self, name):
        return [dict(event.attributes) for span in self.spans for event in span.events if event.name == name]

    def points(self):
        """What the reader collects, by name."""
        told = self.reader.get_metrics_data()
        return {
            metric.name: metric.data.data_points
            for resource in (told.resource_metrics if told else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def metrics(self):
        """The same, by the values of the attributes."""
        return {
            name: {
                tuple(value for _, value in sorted(point.attributes.items())): getattr(point, "value", None)
                or getattr(point, "count", 0)
                for point in points
            }
            for name, points in self.points().items()
        }


@pytest.fixture
def telemetry():
    return Telemetry()


class World(NamedTuple):
    provider: object
    address: str
    seen: list

    def settle(self, telemetry):
        """Wait for the spans of all requests: a client has its answer before the server is done with the request."""
        wait_until(lambda: sum(one.name == "server" for one in telemetry.spans) == len(self.seen))


@pytest.fixture
def world(telemetry):
    """The API in a server that makes a span for each request, as an instrumented one does."""
    provider, seen = telemetry.instrument(acme_provider()), []
    app = acme_app(provider)

    async def traced(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        context = propagate.extract({name.decode(): value.decode() for name, value in scope["headers"]})
        seen.append((scope["path"], trace.get_current_span(context).get_span_context()))
        with telemetry.tracer.start_as_current_span("server", context, SpanKind.SERVER):
            return await app(scope, receive, send)

    with serving(traced) as address:
        yield World(provider, address, seen)


def agent(memory, **options):
    transport = MemoryTransport(memory, guard=Guard(), **options)
    return httpx2.Client(transport=transport, trust_env=False)


def order(client, world):
    return client.post(f"{world.address}/subscriptions", json=EXAMPLE).status_code


def test_what_a_memory_learns_applies_and_drops_is_told_to_the_span_that_the_agent_is_in(telemetry, world):
    memory = telemetry.instrument(Memory())
    with agent(memory, conditional=True) as client, telemetry.tracer.start_as_current_span("agent"):
        assert [order(client, world), order(client, world)] == [422, 201]
        world.provider.registry.reload_table(CODE, set=ROTATED_CODES)
        assert order(client, world) == 201
    [span] = [one for one in telemetry.spans if one.name == "agent"]
    names = [event.name for event in span.events]
    assert names[:2] == ["shelflife.stored", "shelflife.applied"]
    assert "shelflife.evicted" in names
    [applied, *_] = telemetry.events("shelflife.applied")
    assert applied["gen_ai.operation.name"] == "search_memory"
    assert applied["shelflife.fix.type"] == "USE_REQUIRED_PROMO"
    assert applied["shelflife.fields"] == ("promo_code",)
    assert applied["shelflife.operation"] == "POST /subscriptions"
    assert f"http://{applied['server.address']}:{applied['server.port']}" == world.address
    [evicted] = telemetry.events("shelflife.evicted")
    assert (evicted["shelflife.reason"], evicted["gen_ai.operation.name"]) == ("row_changed", "delete_memory")
    stored = telemetry.events("shelflife.stored")[0]
    assert stored["gen_ai.memory.record.id"] == applied["gen_ai.memory.record.id"]


def test_no_value_of_a_request_or_a_fix_is_in_what_is_told(telemetry, world):
    memory = telemetry.instrument(Memory())
    with agent(memory) as client, telemetry.tracer.start_as_current_span("agent"):
        order(client, world)
        order(client, world)
    world.settle(telemetry)
    told = str(
        [(one.name, one.attributes, [(e.name, e.attributes) for e in one.events]) for one in telemetry.spans]
    )
    for value in ("SUMMERSALE25", EXAMPLE["customer"], EXAMPLE["plan"], "acme_pm_visa_credit"):
        assert value not in told


def asked(telemetry):
    return [one for one in telemetry.spans if one.kind == SpanKind.CLIENT]


def test_a_question_is_a_span_below_that_of_the_agent_and_the_server_continues_its_trace(telemetry, world):
    memory = telemetry.instrument(Memory())
    with agent(memory) as client, telemetry.tracer.start_as_current_span("agent") as around:
        order(client, world)
        world.provider.registry.reload_rules(world.provider.state.rules and [*world.provider.state.rules][1:])
        order(client, world)
        order(client, world)
    questions = asked(telemetry)
    assert questions
    for span in questions:
        assert span.parent.span_id == around.get_span_context().span_id
        assert span.attributes["http.response.status_code"] == 200, span.attributes["url.full"]
        assert span.name == f"{span.attributes['http.request.method']} {span.attributes['url.template']}"
        assert span.attributes["url.full"].startswith(world.address)
    heard = {context.span_id for path, context in world.seen if path.startswith("/contract/")}
    assert heard == {span.context.span_id for span in questions}


def test_the_same_holds_for_async_clients(telemetry, world):
    memory = telemetry.instrument(Memory())

    async def run():
        transport = AsyncMemoryTransport(memory, guard=Guard())
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            with telemetry.tracer.start_as_current_span("agent"):
                statuses = [
                    (await client.post(f"{world.address}/subscriptions", json=EXAMPLE)).status_code
                    for _ in range(2)
                ]
        await memory.refresh_async(world.address, ask=lambda question: None)
        return statuses

    assert asyncio.run(run()) == [422, 201]
    assert telemetry.events("shelflife.applied")
    [question] = [one for one in asked(telemetry) if one.parent is None]
    assert (question.status.status_code, question.attributes["error.type"]) == (StatusCode.ERROR, "_OTHER")


def test_a_question_that_is_refused_or_fails_is_an_error_of_its_span(telemetry):
    memory = telemetry.instrument(Memory(ask=lambda question: Reply(503, b"")))
    known = Reply(200, b'{"table_versions":{"t":"1"}}', {"content-type": "application/json"})
    memory.observe(Exchange("http://shop.example", "POST /x", {}, known))
    memory.refresh("http://shop.example")
    [span] = asked(telemetry)
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "503")
    memory.refresh("http://shop.example", ask=lambda question: 1 / 0)
    assert [one.attributes["error.type"] for one in asked(telemetry)] == ["503", "_OTHER"]


def test_a_question_about_a_tool_that_failed_and_did_not_say_why_is_a_span_too(telemetry):
    memory = telemetry.instrument(Memory())
    known = Reply(200, b'{"table_versions":{"t":"1"}}', {"content-type": "application/json"})
    memory.observe(Exchange("http://shop.example", "POST /x", {}, known))
    driven(memory.doubting("http://shop.example", "a tool has failed"), lambda question: None)
    assert [one.attributes["error.type"] for one in asked(telemetry)] == ["_OTHER"]


def test_what_has_come_of_a_check_is_on_the_span_of_its_request(telemetry, world):
    with agent(Memory(), conditional=True) as client:
        assert [order(client, world), order(client, world)] == [422, 201]
        world.provider.registry.reload_table(CODE, set=ROTATED_CODES)
        assert order(client, world) == 201
    world.settle(telemetry)
    requests = [one.attributes for one in telemetry.spans if "shelflife.result" in one.attributes]
    assert [one["shelflife.result"] for one in requests] == ["refused", "passed", "stale", "passed"]
    assert [one.get("shelflife.precondition") for one in requests] == [None, "met", "failed", "met"]
    assert [one["shelflife.log.position"] for one in requests][-1] == world.provider.state.number
    refused = telemetry.events("shelflife.refused")
    assert {one["shelflife.policy"] for one in refused} == {"promo_must_be_the_assigned_one"}
    assert CODE in refused[0]["shelflife.tables"]


def test_both_sides_are_measured_and_nothing_counts_twice(telemetry, world):
    memory = telemetry.instrument(Memory())
    with agent(memory) as client:
        assert [order(client, world) for _ in range(3)] == [422, 201, 201]
    told = telemetry.metrics()
    assert told["shelflife.checks"][("passed",)] == 2
    assert told["shelflife.checks"][("refused",)] == 1
    assert told["shelflife.memory.events"][("applied",)] == memory.statistics.applied == 2
    assert told["shelflife.memory.events"][("stored",)] == memory.statistics.stored == 1
    assert told["shelflife.memory.recalls"] == {("hit",): 2, ("miss",): 1}


def test_questions_are_measured(telemetry, world):
    memory = telemetry.instrument(Memory())
    with agent(memory) as client:
        order(client, world)
        memory.refresh(world.address, ask=lambda question: None)
    durations = telemetry.points()["shelflife.question.duration"]
    assert sum(point.count for point in durations) == len(asked(telemetry)) > 0
    assert durations[0].explicit_bounds[0] < 0.01, "answers take milliseconds"
    assert durations[0].explicit_bounds[-1] == Question("").within_s


def test_to_instrument_twice_changes_nothing(telemetry, world):
    memory = telemetry.instrument(telemetry.instrument(Memory()))
    telemetry.instrument(world.provider)
    with agent(memory) as client, telemetry.tracer.start_as_current_span("agent"):
        order(client, world)
    world.settle(telemetry)
    assert len(telemetry.events("shelflife.stored")) == len(telemetry.events("shelflife.refused")) == 1
    assert telemetry.metrics()["shelflife.checks"][("refused",)] == 1


def test_several_memories_are_added_up_and_one_that_goes_stays_counted(telemetry, world):
    memories = [telemetry.instrument(Memory()) for _ in range(3)]
    for memory in memories:
        memory.recall(world.address, "POST /subscriptions", EXAMPLE)
    assert telemetry.metrics()["shelflife.memory.recalls"][("miss",)] == 3
    del memory
    memories.pop()
    gc.collect()
    assert telemetry.metrics()["shelflife.memory.recalls"][("miss",)] == 3


def test_one_that_goes_while_another_that_has_gone_is_counted_keeps_nobody_waiting():
    class Owner:
        pass

    sources, series = Sources[Owner](), ("recalls", ())
    first, second = Owner(), Owner()
    second.itself = (
        second  # it goes whenever the collector comes by, as a memory does that tells of its questions
    )
    sources.add(first, lambda: {series: 1 + 0 * gc.collect()})
    sources.add(second, lambda: {series: 2})
    told = []

    def tell():
        nonlocal first
        del first
        told.extend(one.value for one in sources.observing("recalls")(None))

    del second
    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(60)
    assert told == [3]
    assert [one.value for one in sources.observing("recalls")(None)] == [3]


def test_without_an_sdk_it_works_as_ever():
    provider, memory = acme_provider(), Memory()
    instrument(provider)
    instrument(memory)
    with serving(acme_app(provider)) as address, agent(memory) as client:
        assert [client.post(f"{address}/subscriptions", json=EXAMPLE).status_code for _ in range(2)] == [
            422,
            201,
        ]


def test_only_memories_and_providers_can_be_instrumented():
    with pytest.raises(TypeError, match=r"a Memory or a Provider can be instrumented, and not FastAPI"):
        instrument(FastAPI())


def conventional(module):
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_every_name_is_one_of_a_convention_or_in_a_namespace_of_ours(telemetry, world):
    memory = telemetry.instrument(Memory())
    with agent(memory, conditional=True) as client, telemetry.tracer.start_as_current_span("agent"):
        order(client, world), order(client, world)
        world.provider.registry.reload_table(CODE, set=ROTATED_CODES)
        order(client, world)
        memory.refresh(world.address, ask=lambda question: None)
    world.settle(telemetry)
    modules = (error_attributes, http_attributes, server_attributes, url_attributes, gen_ai_attributes)
    known = set().union(*map(conventional, modules))
    # The conventions for memories are in a repository of their own, which has no package yet.
    known |= {"gen_ai.memory.record.id", "gen_ai.memory.record.count"}
    told = {name for span in telemetry.spans for name in span.attributes}
    told |= {
        name for span in telemetry.spans for event in span.events for name in (event.name, *event.attributes)
    }
    assert told
    assert {name for name in told - known if not name.startswith("shelflife.")} == set()
