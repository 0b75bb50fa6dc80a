"""Which requests were spared a refusal: not one that mends a request which was refused."""

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from shelflife.client.asking import Fields, Reply
from shelflife.client.entries import Root
from shelflife.client.reading import read_contract
from shelflife.contract import BadMessage
from shelflife.forks import Locking

__all__ = ["Sparing"]

_MOST_REFUSED = 100
"""So many are in mind: those that were refused last. Agents mend a request soon, or never."""

_encode = msgspec.json.Encoder(order="sorted").encode


class _Refused(NamedTuple):
    root: Root
    operation: str
    fixed: frozenset[str]
    """The fields that the refusal has a fix for."""
    rest: bytes
    """The digest of all the others, as they were sent."""


class Sparing(Locking):
    """Keeps in mind which requests were refused, and for which fields. Threads may share it.

    A server refuses for all its reasons at once. Where one of several fixes was remembered, the request is refused for the others as it
    would have been without: when it is mended and accepted, no refusal was spared.
    """

    def __init__(self) -> None:
        self._refused: deque[_Refused] = deque(maxlen=_MOST_REFUSED)
        super().__init__()

    def note_refusal(self, root: Root, operation: str, request: Fields, reply: Reply) -> None:
        """A request was refused. One without a fix in its refusal is none of the contract's."""
        try:
            contract = read_contract(reply, request, operation)
        except BadMessage:
            return
        suggestions = () if contract is None else contract.suggestions
        fixed = frozenset(name for one in suggestions for name in one.parameters)
        if fixed:
            with self._lock:
                self._refused.append(_Refused(root, operation, fixed, _rest(request, fixed)))

    def is_mended(self, root: Root, operation: str, request: Fields) -> bool:
        """Whether a request that was accepted is one that was refused, mended. From then on that is done with."""
        if not self._refused:  # as mostly
            return False
        with self._lock:
            # the contract may have been found below its server meanwhile: then one root begins with the other
            like = [
                one
                for one in self._refused
                if one.operation == operation and (root.startswith(one.root) or one.root.startswith(root))
            ]
            rests = {fixed: _rest(request, fixed) for fixed in {one.fixed for one in like}}
            found = [one for one in like if one.rest == rests[one.fixed]]
            for one in found:
                self._refused.remove(one)
        return bool(found)


def _rest(request: Fields, fixed: Iterable[str]) -> bytes:
    return sha256(_encode({name: value for name, value in request.items() if name not in fixed})).digest()
