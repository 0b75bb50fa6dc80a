"""A scripted model behind a vendor's API: it calls a tool, and once more with the code that it reads in a refusal.

It is served by aimock, which others wrote to stand in for the vendors, so that the frameworks run as they would with a model. It sends
only arguments that are in the schema it was shown.
"""

import json
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.acme_world import FUNDING_1, GOVERNED
from tests.agents.billing import NEW_CODE, OLD_CODE
from tests.node_servers import serving_by_node

SERVED = Path(__file__).with_suffix(".mjs")
KEY = "sk-scripted-0123456789"
DONE, GIVEN_UP = "The subscription is there.", "I could not make it."
PROMPTS = {
    "subscribe": "Subscribe Ada.",
    "mcp__billing__subscribe": "Have Ada subscribed.",
    "create_subscription": "Make a subscription for Ada.",
    "mcp__billing__create_subscription": "Have a subscription made for Ada.",
}
"""What the user says, so that the model calls a tool by this name."""
OTHER_PROMPTS = {tool: prompt.replace("Ada", "Bob on another plan") for tool, prompt in PROMPTS.items()}
"""What the user says, so that the model calls it in another way, and gives up when that is refused."""


def script():
    """By the tool: what the model answers to what it has seen last. The first that fits counts."""
    for tool, prompt in OTHER_PROMPTS.items():
        yield {"userMessage": prompt, "hasToolResult": True}, {"content": GIVEN_UP}
        yield {"userMessage": prompt}, calling(tool, FUNDING_1)
    for tool, prompt in PROMPTS.items():
        of_tool = {"userMessage": prompt}
        for made in ("was made", '"success":true', '"success": true'):
            yield of_tool | {"toolResultContains": made}, {"content": DONE}
        for code in (NEW_CODE, OLD_CODE):
            yield of_tool | {"toolResultContains": code}, calling(tool, GOVERNED | {"promo_code": code})
        yield of_tool | {"hasToolResult": True}, {"content": GIVEN_UP}
        yield of_tool, calling(tool, GOVERNED)


def calling(tool, wanted):
    return {"toolCalls": [{"name": tool, "arguments": wanted}]}


class Model:
    """The vendor, and what it has heard from one test."""

    def __init__(self, http):
        self.address = str(http.base_url).rstrip("/")
        self._http = http

    def heard(self):
        """Each request that was made for an answer of the model, as text."""
        journal = self._http.get("/__aimock/journal").raise_for_status().json()
        entries = journal if isinstance(journal, list) else journal["entries"]
        return [json.dumps(entry["body"]) for entry in entries if entry["method"] == "POST"]

    def forget(self):
        """Begin anew."""
        self._http.post("/__aimock/reset/journal").raise_for_status()


@contextmanager
def scripted_model(folder):
    """The vendor, for as long as a block runs."""
    fixtures = folder / "script.json"
    fixtures.write_text(json.dumps([{"match": match, "response": said} for match, said in script()]))
    key = {"Authorization": f"Bearer {KEY}"}
    with (
        serving_by_node(SERVED, fixtures, SCRIPTED_KEY=KEY) as address,
        httpx2.Client(base_url=address, trust_env=False, headers=key) as http,
    ):
        yield Model(http)
