"""What lies between an agent that has pinned a key and its server: whatever is said may be changed on the way."""

import base64
import json
import re

import httpx2
import msgspec

from shelflife.apis.acme import acme_app
from shelflife.client import Reply
from shelflife.contract.positions import AT_HEADER
from shelflife.contract.signed import statement_input
from shelflife.integrations.ed25519 import SigningKey
from tests.client.agents import Agent
from tests.worlds import TABLES

DAY_S = 24 * 3600
KEY = SigningKey.new()
OTHER_KEY = SigningKey.new()


class Naming(Agent):
    """An agent whose requests and questions say where its memory stands."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.headers = {}
        """What it sends with everything."""

    def ask(self, question):
        self.asked.append(question.url)
        try:
            response = self.http.request(
                question.method,
                question.url,
                content=question.body,
                headers={**question.headers, **self.headers},
            )
        except httpx2.TransportError:
            return None
        return Reply(response.status_code, response.content)

    def call(self, request):
        self.memory.observe(self.unobserved(request))

    def unobserved(self, request):
        at = self.memory.contract_at(self.origin)
        return self.sent(request, {AT_HEADER: at})._replace(at=at)

    def sent(self, request, headers):
        method, path = self.operation.split(" ")
        response = self.http.request(
            method, self.origin + path, json=request, headers={**headers, **self.headers}
        )
        return self.exchange(request, response)


class Wire:
    """What lies between an agent and its server: it may change whatever comes back."""

    def __init__(self, agent):
        self.agent = agent
        self.answers = []
        self.tamper_answer = lambda question, answer: answer
        self.tamper_response = lambda exchange: exchange
        honest = agent.ask

        def ask(question):
            answer = honest(question)
            if answer is not None and "/contract/signed" in question.url:
                self.answers.append(answer)
            return self.tamper_answer(question, answer)

        agent.asker = ask

    def call(self, request):
        self.agent.memory.observe(self.tamper_response(self.agent.unobserved(request)))


class Replaced:
    """An address behind which another server can be put."""

    def __init__(self, provider):
        self.put(provider)

    def put(self, provider):
        self._app = acme_app(provider)

    async def __call__(self, scope, receive, send):
        await self._app(scope, receive, send)


def held(agent):
    return [entry.parameters for entry in agent.memory.store.entries()]


def asked(agent):
    return [url.rpartition("/contract/")[2].partition("?")[0] for url in agent.asked]


UNSIGNED = ("position forged", "moves forged", "loss forged", "position hidden")
SIGNED = ("answer forged", "answer replayed", "no answer", "signed by another", "question changed")


def tamper(wire, how):
    wire.tamper_answer = lambda question, answer: answer
    wire.tamper_response = lambda exchange: exchange
    match how:
        case "position forged":
            wire.tamper_response = lambda exchange: saying(exchange, "Forged9")
        case "moves forged":
            wire.tamper_response = with_forged_moves
        case "loss forged":
            wire.tamper_response = lambda exchange: saying(
                exchange, {"to": "Forged1", **question_in(exchange), "unknown": "foreign"}
            )
        case "position hidden":
            wire.tamper_response = lambda exchange: wire.agent.sent(exchange.request, {})._replace(
                at=exchange.at
            )
        case "answer forged":
            wire.tamper_response = with_forged_moves
            wire.tamper_answer = lambda question, answer: msgspec.structs.replace(
                answer, body=answer.body.replace(b'\\"to\\":\\"', b'\\"to\\":\\"A')
            )
        case "answer replayed":
            wire.tamper_response = with_forged_moves
            wire.tamper_answer = lambda question, answer: wire.answers[0]
        case "no answer":
            wire.tamper_response = with_forged_moves
            wire.tamper_answer = lambda question, answer: None
        case "signed by another":
            wire.tamper_response = with_forged_moves
            wire.tamper_answer = lambda question, answer: (
                by_another_key(answer) if "/signed" in question.url else answer
            )
        case "question changed":
            wire.tamper_response = with_forged_moves
            wire.tamper_answer = lambda question, answer: wire.agent.ask(
                question._replace(url=re.sub("from=[^&]*", "from=Forged0", question.url))
            )


def question_in(exchange):
    """What a reply repeats of what its request has named."""
    base, _, nonce = exchange.at.partition(";n=")
    return {"from": base} | ({"nonce": nonce} if nonce else {})


def saying(exchange, at):
    """The exchange with another position in its reply."""
    body = json.loads(exchange.reply.body) | {"at": at}
    return exchange._replace(reply=msgspec.structs.replace(exchange.reply, body=json.dumps(body).encode()))


def with_forged_moves(exchange):
    """All has moved, and nobody can say to what."""
    tables = (*TABLES, "active_csm_codes", "required_promo_policy", "token_funding_map")
    moved = {"tables": {table: {"known": False} for table in tables}, "rules": {"known": False}}
    return saying(exchange, {"to": "Forged99", **question_in(exchange), "moved": moved})


def by_another_key(answer):
    tree = msgspec.json.decode(answer.body)
    tree["key"] = OTHER_KEY.key
    tree["signature"] = base64.b64encode(OTHER_KEY.sign(statement_input(tree["statement"]))).decode()
    return msgspec.structs.replace(answer, body=msgspec.json.encode(tree))
