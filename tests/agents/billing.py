"""Acme billing as the tools of an agent see it. What counts is read at the server: how often it was asked to make a subscription."""

import json
from contextlib import contextmanager

import httpx2

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Reply, contract_headers
from shelflife.contract.envelopes import Envelope
from shelflife.testing import serving
from tests.acme_world import change_another_row, rotate

OPERATION = "POST /subscriptions"
OLD_CODE, NEW_CODE = "SUMMERSALE25", "WINTERLAUNCH26"
ENDPOINT = "/subscriptions"


class Billing:
    """A real server, and a note of each request to make a subscription: its body, its headers and the status of the answer."""

    def __init__(self):
        self.provider = acme_provider()
        self._app = acme_app(self.provider)
        self.seen = []
        self.asked = []
        """The questions of memories, by path."""

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if scope["path"] != ENDPOINT:
            self.asked.append(scope["path"])
            return await self._app(scope, receive, send)
        body = b""

        async def received():
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            return message

        async def sent(message):
            if message["type"] == "http.response.start":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.seen.append((json.loads(body), headers, message["status"]))
            await send(message)

        return await self._app(scope, received, sent)

    def rotate(self):
        """Give the plan another code, so that what was learned has gone stale."""
        rotate(self.provider)

    def change_another_row(self):
        """So that nothing that was learned has gone stale, though its table has moved."""
        change_another_row(self.provider)

    @property
    def statuses(self):
        """Of all answers so far, in order."""
        return [status for _, _, status in self.seen]

    def count_of(self, play):
        """How many attempts the server has seen while something was played."""
        before = len(self.seen)
        play()
        return len(self.seen) - before

    @contextmanager
    def served(self):
        """On a real port."""
        with (
            serving(self) as self.address,
            httpx2.Client(base_url=self.address, trust_env=False, timeout=60) as self.http,
        ):
            yield self

    def subscribe(self, **wanted):
        """What a tool does that knows nothing of a memory: a request, and an exception when it is refused."""
        response = self.http.post(ENDPOINT, json=wanted, headers=contract_headers())
        response.raise_for_status()
        return response.json()

    async def subscribe_async(self, **wanted):
        """The same in an event loop."""
        async with httpx2.AsyncClient(base_url=self.address, trust_env=False, timeout=60) as http:
            response = await http.post(ENDPOINT, json=wanted, headers=contract_headers())
        response.raise_for_status()
        return response.json()

    def subscribe_in_words(self, **wanted):
        """A tool of a channel that keeps only the text of an error."""
        response = self.http.post(ENDPOINT, json=wanted)
        if response.is_error:
            told = Envelope(response.status_code, response.json())
            raise RuntimeError(told.trailing("The subscription was refused."))
        return "The subscription was made."

    def ask(self, question):
        """Put a question of a memory to the server."""
        answer = self.http.request(
            question.method, question.url, content=question.body, headers=dict(question.headers)
        )
        return Reply(answer.status_code, answer.content)

    async def ask_async(self, question):
        """The same in an event loop."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.request(
                question.method, question.url, content=question.body, headers=dict(question.headers)
            )
        return Reply(answer.status_code, answer.content)


@contextmanager
def billing():
    """A server of its own, for as long as a block runs."""
    with Billing().served() as server:
        yield server
