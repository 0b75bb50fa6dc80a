"""A memory in OpenTelemetry: what it asks is a span, what happens to it is an event of the span that the agent is in, and is counted.

Names are those of the HTTP and GenAI conventions where they have any. What a fix sets is not told, only which fields.
"""

import re
import time
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from shelflife.client.asking import LEAST_FAILURE, Question, Reply, Steps
from shelflife.client.entries import Entry
from shelflife.client.events import Applied, Event, Evicted, Stored
from shelflife.client.memory import Memory
from shelflife.client.telling import Telling
from shelflife.extras import needing
from shelflife.integrations.telemetry import SCOPE, VERSION, Series, Sources, meter_of, once

with needing("opentelemetry"):
    from opentelemetry import propagate, trace
    from opentelemetry.metrics import Counter, Histogram, MeterProvider
    from opentelemetry.trace import SpanKind, StatusCode, Tracer, TracerProvider

__all__ = ["instrument_memory"]

_OPERATIONS = {Applied: "search_memory", Stored: "create_memory", Evicted: "delete_memory"}
"""What the GenAI conventions call it."""

_NO_ANSWER = "_OTHER"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
"""As in the HTTP conventions, up to where no answer is waited for any more. An SDK's own are for milliseconds."""

Attributes = dict[str, Any]


class _Instruments(NamedTuple):
    """What a memory is measured with."""

    events: Counter
    durations: Histogram
    recalls: Sources[Memory]


@cache  # an SDK keeps the first instrument of a name, with its callbacks
def _instruments(meter_provider: MeterProvider | None) -> _Instruments:
    meter, recalls = meter_of(meter_provider), Sources[Memory]()
    meter.create_observable_counter(
        "shelflife.memory.recalls",
        [recalls.observing("recalls")],
        unit="{recall}",
        description="How often a memory was asked for what it holds for a request, by whether it had anything.",
    )
    return _Instruments(
        meter.create_counter(
            "shelflife.memory.events",
            unit="{event}",
            description="What has happened to what is remembered, by event, and by reason where there is one.",
        ),
        meter.create_histogram(
            "shelflife.question.duration",
            unit="s",
            description="How long a memory has waited for the answer to a question of its own.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
        recalls,
    )


def instrument_memory(
    memory: Memory, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
) -> None:
    """Trace and measure a memory."""
    if not once(memory):
        return
    instruments = _instruments(meter_provider)
    tracer = trace.get_tracer(SCOPE, VERSION, tracer_provider)
    instruments.recalls.add(memory, partial(_recalls, memory.telling))
    memory.telling.listeners.append(partial(_tell, instruments.events))
    memory.watch_questions(partial(_asked, tracer, instruments.durations))


def _recalls(telling: Telling) -> Mapping[Series, int]:
    told = telling.statistics
    counts = {"hit": told.hits, "miss": told.misses}
    return {("recalls", (("shelflife.result", result),)): count for result, count in counts.items()}


def _tell(events: Counter, event: Event) -> None:
    """Tell an event to the span that the agent is in, and count it."""
    name = _name_of(type(event))
    counted: Attributes = {"shelflife.event": name}
    if isinstance(event, Evicted):
        counted["shelflife.reason"] = event.reason.name.lower()
    events.add(getattr(event, "count", 1), counted)
    span = trace.get_current_span()
    if span.is_recording():
        span.add_event(f"shelflife.{name}", _attributes_of(event))


@cache
def _name_of(kind: type[Event]) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def _attributes_of(event: Event) -> Attributes:
    told: Attributes = {}
    if operation := _OPERATIONS.get(type(event)):
        told["gen_ai.operation.name"] = operation
    entry: Entry | None = getattr(event, "entry", None)
    if entry is not None:
        told["gen_ai.memory.record.id"] = entry.id
        told |= {"shelflife.operation": entry.operation, "shelflife.fix.type": entry.type}
        told |= _server(entry.root)
    if (root := getattr(event, "root", None)) is not None:
        told |= _server(root)
    if (count := getattr(event, "count", None)) is not None:
        told["gen_ai.memory.record.count"] = count
    if isinstance(event, Applied):
        told["shelflife.fields"] = sorted(event.fields)
    if isinstance(event, Evicted):
        told["shelflife.reason"] = event.reason.name.lower()
    for name in ("why", "table", "operation"):
        if isinstance(said := getattr(event, name, None), str):
            told[f"shelflife.{name}"] = said
    return told


def _server(url: str) -> Attributes:
    parts = urlsplit(url)
    told: Attributes = {"server.address": parts.hostname or url}
    return told if parts.port is None else {**told, "server.port": parts.port}


def _asked(tracer: Tracer, durations: Histogram, question: Question) -> Steps[Reply | None]:
    """Ask a question within a span, whose context goes with it.

    The span is not made the current one: whoever sends the question may do so in another task, and several may be under way.
    """
    path = urlsplit(question.url).path
    what = path.rpartition("/")[2]
    template = path[path.rfind("/contract/") :]
    attributes: Attributes = {"shelflife.question": what, **_server(question.url)}
    if question.url.startswith("http"):
        attributes |= {
            "http.request.method": question.method, "url.full": question.url, "url.template": template,
        }  # fmt: skip
    measured: Attributes = {"shelflife.question": what}
    span = tracer.start_span(f"{question.method} {template}", kind=SpanKind.CLIENT, attributes=attributes)
    begun_at = time.monotonic()
    try:
        headers = dict(question.headers)
        propagate.inject(headers, trace.set_span_in_context(span))
        reply = yield question._replace(headers=headers)
        status = None if reply is None else reply.status
        if status is not None:
            span.set_attribute("http.response.status_code", status)
            measured["http.response.status_code"] = status
        if status is None or status >= LEAST_FAILURE:
            measured["error.type"] = _NO_ANSWER if status is None else str(status)
            span.set_attribute("error.type", measured["error.type"])
            span.set_status(StatusCode.ERROR)
        return reply
    finally:
        durations.record(time.monotonic() - begun_at, measured, trace.set_span_in_context(span))
        span.end()
