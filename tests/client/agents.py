"""An agent's hands for the tests: it calls a real server and lets a memory watch."""

import httpx2

from shelflife.client import EXACT, Exchange, Memory, Reply
from shelflife.contract.positions import AT_HEADER


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Agent:
    """Calls one operation of a server, and has a memory."""

    def __init__(
        self,
        address,
        operation="POST /subscriptions",
        strategy=EXACT,
        http=None,
        names_positions=False,
        **options,
    ):
        self.origin = address
        self.operation = operation
        self.names_positions = names_positions
        self.events = []
        self.asked = []
        self.http = http or httpx2.Client(trust_env=False, timeout=60)
        self.asker = self.ask
        """What the memory asks servers by; a test may put something between them."""

        self.memory = Memory(
            strategy=strategy,
            ask=lambda question: self.asker(question),
            on_event=self.events.append,
            **options,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.http.close()

    def ask(self, question):
        self.asked.append(question.url)
        try:
            response = self.http.request(
                question.method, question.url, content=question.body, headers=dict(question.headers)
            )
        except httpx2.TransportError:
            return None
        return Reply(response.status_code, response.content)

    def call(self, request):
        """Make the request as it is; the memory observes the response."""
        exchange = self.unobserved(request)
        self.memory.observe(exchange)
        return self.response

    def unobserved(self, request):
        """Make the request; the response is yet to be seen by the memory."""
        method, path = self.operation.split(" ")
        headers = {AT_HEADER: self.memory.contract_at(self.origin)} if self.names_positions else {}
        self.response = self.http.request(method, self.origin + path, json=request, headers=headers)
        return self.exchange(request, self.response, headers.get(AT_HEADER))

    def exchange(self, request, response, at=None):
        headers = {name.lower(): value for name, value in response.headers.items()}
        reply = Reply(response.status_code, response.content, headers)
        return Exchange(self.origin, self.operation, request, reply, at)

    def recall(self, request, **options):
        return self.memory.recall(self.origin, self.operation, request, **options)

    def of(self, kind):
        """The events of a kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def knows(agent, request):
    """What the agent would do to a request, oldest first."""
    return [entry.parameters for entry in agent.recall(request)]


def learn(agent, *requests):
    """Make the requests; what happens from then on is all that the events tell."""
    for request in requests:
        agent.call(request)
    agent.events.clear()


def only_get(ask):
    """Whoever asks so is told nothing of fixes: what has gone is not renewed."""
    return lambda question: ask(question) if question.body is None else None


def posting(agent, answer):
    """Whoever asks so gets another answer about fixes, and the agent's own to all else."""
    return lambda question: agent.ask(question) if question.body is None else answer(question)
