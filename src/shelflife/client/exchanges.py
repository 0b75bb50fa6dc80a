"""What a memory looks at: a request that was made, and what came back."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shelflife.client.asking import Reply
from shelflife.client.entries import Root
from shelflife.contract.preconditions import verdict_in
from shelflife.contract.values import DEEPEST_VALUE, fault_in

__all__ = ["Exchange", "is_json"]


class Exchange(NamedTuple):
    """A request that was made and the reply that came back."""

    root: Root
    """Where the contract lives: `scheme://host:port` of the server."""

    operation: str
    """E.g. `POST /subscriptions`."""

    request: Mapping[str, Any]
    """The fields of the request."""

    reply: Reply
    epoch: str | None = None
    """What the request had in `Contract-Epoch`, if it had that."""

    conditional: bool = False
    """Whether the request had a precondition."""

    @property
    def is_unjudged(self) -> bool:
        """Whether it may have been carried out though nobody has found its precondition to be met."""
        may_be_done = not 400 <= self.reply.status < 500
        return self.conditional and may_be_done and verdict_in(self.reply.headers) != "met"

    @classmethod
    def told(cls, root: Root, operation: str, request: Mapping[str, Any], body: bytes) -> "Exchange":
        """What a server has answered when asked, as though it were the reply to a request."""
        return cls(root, operation, request, Reply(200, body, {"content-type": "application/json"}))


def is_json(operation: str, request: Mapping[str, Any]) -> bool:
    """Whether JSON can carry a request as it is; for any other nothing is recalled, learned or asked."""
    fields = request if type(request) is dict else dict(request)
    return (operation.isascii() or fault_in(operation, 0) is None) and (
        fault_in(fields, DEEPEST_VALUE, is_strict=True) is None
    )
