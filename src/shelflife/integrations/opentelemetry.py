"""OpenTelemetry, by its API alone: what a memory and a provider do, in the traces and metrics of the program that they are in.

Whatever SDK and exporter the program has set up gets it. Without any, next to nothing is done.
"""

from typing import TYPE_CHECKING

from shelflife.client.memory import Memory
from shelflife.extras import needing

with needing("opentelemetry"):
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

if TYPE_CHECKING:  # an agent need not have what a server needs
    from shelflife.server.provider import Provider

__all__ = ["instrument"]


def instrument(
    what: "Memory | Provider",
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and measure a memory or a provider, from now on. A second time changes nothing.

    By default it goes to the providers that the program has set, now or later.
    """
    from shelflife.integrations import telemetry_client

    if isinstance(what, Memory):
        telemetry_client.instrument_memory(what, tracer_provider, meter_provider)
        return
    if not hasattr(what, "on_checked"):  # what is no provider need not have what a provider needs
        raise TypeError(f"a Memory or a Provider can be instrumented, and not {type(what).__name__}")
    from shelflife.integrations import telemetry_server

    telemetry_server.instrument_provider(what, meter_provider)
