"""How a client asks for a stream of events, and reads one."""

import json

LISTENING = {"Accept": "text/event-stream"}


def events(response):
    """The events of a stream, each as a dictionary; comments as None."""
    event = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            yield None
        elif line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield {**event, "data": json.loads(event["data"])}
            event = {}
