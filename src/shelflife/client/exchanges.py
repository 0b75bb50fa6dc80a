"""What a memory looks at: a request that was made, and what came back."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shelflife.contract.preconditions import verdict_in
from shelflife.contract.values import DEEPEST_VALUE, fault_in

__all__ = ["Exchange", "as_told", "is_json"]


class Exchange(NamedTuple):
    """A request that was made and the response that came back."""

    origin: str
    """`scheme://host:port` of the server."""

    operation: str
    """E.g. `POST /subscriptions`."""

    request: Mapping[str, Any]
    """The fields of the request."""

    status: int
    headers: Mapping[str, str]
    """Of the response, by lower-case name."""

    body: bytes
    """Of the response, decoded."""

    epoch: str | None = None
    """What the request had in `Contract-Epoch`, if it had that."""

    conditional: bool = False
    """Whether the request had a precondition."""

    @property
    def is_unjudged(self) -> bool:
        """Whether it may have been carried out though nobody has found its precondition to be met."""
        may_be_done = not 400 <= self.status < 500
        return self.conditional and may_be_done and verdict_in(self.headers) != "met"


def is_json(operation: str, request: Mapping[str, Any]) -> bool:
    """Whether JSON can carry a request as it is; for any other nothing is recalled, learned or asked."""
    fields = request if type(request) is dict else dict(request)
    return (operation.isascii() or fault_in(operation, 0) is None) and (
        fault_in(fields, DEEPEST_VALUE, is_strict=True) is None
    )


def as_told(origin: str, operation: str, request: Mapping[str, Any], body: bytes) -> Exchange:
    """What a server has answered when asked, as though it were the response to a request."""
    return Exchange(origin, operation, request, 200, {"content-type": "application/json"}, body)
