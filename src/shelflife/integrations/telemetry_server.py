"""A provider in OpenTelemetry: what has come of a check is on the span of its request, and what is counted is a metric.

What is measured is of this process: it is for the backend to add processes up.
"""

from collections.abc import Mapping
from functools import cache, partial

from shelflife.extras import needing
from shelflife.integrations.telemetry import Series, Sources, meter_of, once
from shelflife.server.counting import Counts
from shelflife.server.metrics import METRICS
from shelflife.server.pins import Checked
from shelflife.server.policies import Refusal
from shelflife.server.provider import Provider

with needing("opentelemetry"):
    from opentelemetry import trace
    from opentelemetry.metrics import MeterProvider

__all__ = ["instrument_provider"]

_LABELS = {one.name: tuple(f"shelflife.{label}" for label in one.labels) for one in METRICS}


@cache  # an SDK keeps the first instrument of a name, with its callbacks
def _sources(meter_provider: MeterProvider | None) -> Sources[Provider]:
    meter, sources = meter_of(meter_provider), Sources[Provider]()
    for metric in METRICS:
        if metric.kind == "counter":
            meter.create_observable_counter(
                f"shelflife.{metric.name}",
                [sources.observing(metric.name)],
                unit="1",
                description=metric.says,
            )
    return sources


def instrument_provider(provider: Provider, meter_provider: MeterProvider | None) -> None:
    """Trace and measure a provider."""
    if once(provider):
        _sources(meter_provider).add(provider, partial(_counts, provider.counts))
        provider.on_checked.append(_tell)


def _counts(counts: Counts) -> Mapping[Series, int]:
    return {
        (name, tuple(zip(_LABELS[name], labels, strict=True))): count
        for (name, *labels), count in counts.own().items()
    }


def _tell(checked: Checked) -> None:
    """Put what has come of a check on the span of its request."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    pin = checked.pin
    span.set_attribute("shelflife.result", checked.result)
    span.set_attribute("shelflife.log.position", pin.shown.state.number)
    if pin.verdict is not None:
        span.set_attribute("shelflife.precondition", pin.verdict)
    if isinstance(checked.failure, Refusal):
        for policy, suggestion in checked.failure.violations:
            tables = [one.table for one in suggestion.tables or ()]
            span.add_event(
                "shelflife.refused",
                {
                    "shelflife.policy": policy.id,
                    "shelflife.fix.type": suggestion.type,
                    "shelflife.tables": tables,
                },
            )
