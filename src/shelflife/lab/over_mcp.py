"""A run over MCP: the requests of its agents are calls of a tool, and the questions of their memories reads of a resource.

To the agents it is a transport of their HTTP client, so that nothing but the channel is another: a planner is shown what it is shown over
HTTP. What an operator does goes over HTTP as ever.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec

from shelflife.contract.envelopes import META_KEY, Envelope, QuestionUri
from shelflife.contract.positions import AT_HEADER
from shelflife.extras import needing

__all__ = ["over_mcp"]

_JSON = {"content-type": "application/json"}
_MADE, _REFUSED = 201, 422


@contextmanager
def over_mcp(address: str, operation: str, plain: httpx2.BaseTransport) -> Iterator[httpx2.BaseTransport]:
    """A transport to the tool that is this operation, of a server that has only that. All else goes by the `plain` one."""
    with needing("mcp"):
        import mcp
        from anyio.from_thread import start_blocking_portal
    with (
        plain,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(mcp.Client(f"{address}/mcp")) as client,
    ):
        [tool] = portal.call(client.list_tools).tools
        yield _OverMcp(portal, client, tool.name, operation, plain)


class _OverMcp(httpx2.BaseTransport):
    def __init__(
        self, portal: Any, client: Any, tool: str, operation: str, plain: httpx2.BaseTransport
    ) -> None:
        self._portal, self._client, self._tool = portal, client, tool
        self._operation, self._plain = operation, plain

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        path, body = request.url.path, request.read()
        if path.startswith("/contract/"):
            query, at = request.url.query.decode(), request.headers.get(AT_HEADER, "")
            return self._asked(QuestionUri(path, query, body or None, at))
        if f"{request.method} {path}" != self._operation:
            return self._plain.handle_request(request)
        said = {name: value for name, value in request.headers.items() if name.startswith("contract-")}
        return self._called(msgspec.json.decode(body), {META_KEY: said} if said else None)

    def _asked(self, question: QuestionUri) -> httpx2.Response:
        [contents] = self._portal.call(self._client.session.read_resource, question.text).contents
        return _response(msgspec.json.decode(contents.text, type=Envelope))

    def _called(self, arguments: dict[str, Any], meta: Any) -> httpx2.Response:
        result = self._portal.call(lambda: self._client.call_tool(self._tool, arguments, meta=meta))
        envelope = Envelope.from_meta(result.meta)
        if result.is_error:
            if envelope is not None:
                return _response(envelope)
            return httpx2.Response(_REFUSED, text="\n".join(block.text for block in result.content))
        told = envelope or Envelope(_MADE)
        body = {**(result.structured_content or {}), **(told.body or {})}
        return _response(Envelope(_MADE, body, told.headers))


def _response(envelope: Envelope) -> httpx2.Response:
    return httpx2.Response(
        envelope.status, content=msgspec.json.encode(envelope.body), headers={**_JSON, **envelope.headers}
    )
