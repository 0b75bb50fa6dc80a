"""How far a request goes: the path through the agent's side is short enough to be drawn."""

import sys
from itertools import pairwise

import httpx2

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Guard, Memory
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.testing import serving
from tests.acme_world import GOVERNED


def modules_of(call):
    """The modules of the package that are at work while something is called, one after the other: on every call and on every return."""
    stack, path = [], []

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("shelflife.") or event not in ("call", "return"):
            return
        if event == "call":
            stack.append(name)
        else:
            stack.pop()
        path.extend(stack[-1:])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return path


def path_of_a_first_refused_request():
    statuses = []
    with serving(acme_app(acme_provider())) as address:
        transport = MemoryTransport(Memory(), guard=Guard())
        with httpx2.Client(base_url=address, transport=transport) as client:
            path = modules_of(
                lambda: statuses.append(client.post("/subscriptions", json=GOVERNED).status_code)
            )
    assert statuses == [422]
    return path


def test_a_first_refused_request_passes_few_modules_and_seldom_changes_between_them():
    path_of_a_first_refused_request()  # what is imported and kept once in a process lies on no other's path
    path = path_of_a_first_refused_request()
    switches = sum(one != other for one, other in pairwise(path))
    assert len(set(path)) <= 22
    assert switches <= 110
