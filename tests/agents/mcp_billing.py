"""Acme as an MCP server, and what is seen of the adapter of a framework before it."""

import asyncio
import json
from contextlib import contextmanager, nullcontext

import httpx2

from shelflife.apis.acme import acme_provider
from shelflife.apis.acme.tools import acme_tools
from shelflife.testing import serving
from tests.acme_world import change_another_row, rotate
from tests.agents.capabilities import Can
from tests.agents.scripted import DONE, GIVEN_UP, KEY, OTHER_PROMPTS, PROMPTS
from tests.agents.suite import TRAILER
from tests.lazily import Lazily

__all__ = ["McpBilling", "shown_by"]

openai = Lazily("openai")


class McpBilling:
    """Acme as an MCP server, and the number of calls that it was asked to make."""

    def __init__(self):
        self.provider = acme_provider()
        self._app = acme_tools(self.provider).streamable_http_app()
        self.call_count = 0

    async def __call__(self, scope, receive, send):
        async def received():
            message = await receive()
            if message.get("body"):
                self.call_count += json.loads(message["body"]).get("method") == "tools/call"
            return message

        await self._app(scope, received if scope["type"] == "http" else receive, send)

    @contextmanager
    def served(self):
        with serving(self) as address:
            self.url = f"{address}/mcp"
            yield self


def shown_by(server, model, episode, program=None):
    """What is seen of an adapter in episodes with a rotation in the middle, all by one program if there is one.

    At last another row changes, and somebody who is refused for another reason is told that its table has moved.
    """
    heard = []

    async def played():
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http, program or nullcontext():
            client = openai.AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=http)

            async def seen(prompts, said):
                """How often a tool is called, and how many turns the model has."""
                before = server.call_count
                model.forget()
                assert await episode(client, prompts) == said
                heard.extend(model.heard())
                return server.call_count - before, len(model.heard())

            counts = [await seen(PROMPTS, DONE) for _ in range(2)]
            rotate(server.provider)
            counts += [await seen(PROMPTS, DONE) for _ in range(2)]
            change_another_row(server.provider)
            return [*counts, await seen(OTHER_PROMPTS, GIVEN_UP), await seen(PROMPTS, DONE)]

    *counts, at_last = asyncio.run(asyncio.wait_for(played(), 300))
    assert counts in ([(2, 3), (1, 2), after, (1, 2), (1, 2)] for after in ((2, 2), (2, 3)))
    assert at_last in ((1, 2), (2, 3))
    return Can(
        be_exact=at_last == (1, 2),
        run_again=counts[2] == (2, 2),
        hide_the_trailer=not any(TRAILER in said for said in heard),
    )
