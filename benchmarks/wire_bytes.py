"""What the contract costs on the wire, in the full and in the compact form, by the number of tables.

Forty exchanges with responses of the size that a payment gateway sends, while nothing drifts. In the first the client knows no position yet. Bodies of
requests and responses are counted, and the header in which the client says what it knows. And what a refusal of the demo's API costs a
planner that reads it: whole, and without what only the memory reads.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
from fastapi import FastAPI

from benchmarks.figures import Figure, at_most
from shelflife.apis.acme import acme_app
from shelflife.apis.acme.gateway import InProcessGateway, Order
from shelflife.client import Exchange, Memory, Question, Reply
from shelflife.client.prompts import for_planner
from shelflife.contract.positions import AT_HEADER
from shelflife.integrations.fastapi import install
from shelflife.lab.planners.simulated import estimated_tokens
from shelflife.server import Provider
from shelflife.testing import serving

__all__ = ["measure"]

_SUBJECT = "wire bytes"
_TABLE_COUNTS = (6, 50, 500)
_MOST_PERCENT = 3.0
_ORDER = Order("cus_ada", "plan_basic_annual", 12000, "usd", "acme_pm_visa_credit", None)


class _Sent(NamedTuple):
    bytes: int
    contract_bytes: int
    last_contract_bytes: int
    """Of the last exchange, when the client has known the state for long."""

    @property
    def percent(self) -> float:
        return 100 * self.contract_bytes / self.bytes


def measure(is_quick: bool) -> Iterator[Figure]:
    """Both forms at each number of tables."""
    yield from _refusal_tokens()
    exchange_count = 5 if is_quick else 40
    for table_count in _TABLE_COUNTS:
        for compact in (False, True):
            sent = _exchanged(table_count, exchange_count, compact)
            form = "compact" if compact else "full"
            yield Figure(
                subject=_SUBJECT,
                what=f"{table_count} tables, {form} form: share of the contract in all bytes",
                measured=sent.percent,
                unit="%",
                sample_count=exchange_count,
                target=at_most(_MOST_PERCENT) if compact and table_count == _TABLE_COUNTS[0] else None,
            )
            yield Figure(
                subject=_SUBJECT,
                what=f"{table_count} tables, {form} form: bytes of the contract in an exchange, after the first",
                measured=sent.last_contract_bytes,
                unit="bytes",
            )


def _refusal_tokens() -> Iterator[Figure]:
    """One public tokenizer, as in the lab."""
    with serving(acme_app()) as address, httpx2.Client(base_url=address, trust_env=False) as client:
        refusal = client.post("/subscriptions", json=_ORDER._asdict() | {"plan": "plan_partner_growth"})
    if refusal.status_code != httpx2.codes.UNPROCESSABLE_ENTITY:
        raise RuntimeError(f"the order was answered with {refusal.status_code}, and not refused")
    for what, text in (("as it is sent", refusal.text), ("as a planner needs it", for_planner(refusal.text))):
        yield Figure(
            subject=_SUBJECT, what=f"a refusal {what}", measured=estimated_tokens(text), unit="tokens"
        )


def _exchanged(table_count: int, exchange_count: int, compact: bool) -> _Sent:
    bare = InProcessGateway().subscribe(_ORDER).details
    provider = Provider(
        {f"reference_table_{number:03d}": {"k": {"v": number}} for number in range(table_count)}
    )
    app = FastAPI()
    install(app, provider)

    @app.post("/orders")
    def order(wanted: dict[str, Any]) -> dict[str, Any]:
        return {"success": True, "subscription": bare}

    bare_length = len(json.dumps({"success": True, "subscription": bare}, separators=(",", ":")))
    request = json.dumps(_ORDER._asdict()).encode()
    whole = contract = last = 0
    with serving(app) as address, httpx2.Client(base_url=address, trust_env=False) as client:

        def ask(question: Question) -> Reply:
            answer = client.get(question.url)
            return Reply(answer.status_code, answer.content)

        memory = Memory(ask=ask)
        for _ in range(exchange_count):
            headers = {"content-type": "application/json"}
            at = memory.contract_at(address) if compact else None
            if at is not None:
                headers[AT_HEADER] = at
            response = client.post("/orders", content=request, headers=headers)
            said = 0 if at is None else len(f"{AT_HEADER}: {at}\r\n")
            whole += len(request) + said + len(response.content)
            last = said + len(response.content) - bare_length
            contract += last
            stamps = {name.lower(): value for name, value in response.headers.items()}
            reply = Reply(response.status_code, response.content, stamps)
            memory.observe(Exchange(address, "POST /orders", {}, reply, at))
    return _Sent(whole, contract, last)
