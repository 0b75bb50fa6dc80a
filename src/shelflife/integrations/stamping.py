"""What becomes of a response under the contract, whatever protocol it goes out by: which headers it gets, and which body.

Headers are pairs of bytes, as in ASGI. This runs on every response, so it makes no object and no call without need.
"""

from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.server.feedback import Answer, stamped
from shelflife.server.pins import Pin
from shelflife.server.provider import Provider
from shelflife.server.stamps import encoded

__all__ = [
    "CALL_CHECK",
    "CONTRACT_KEY",
    "Headers",
    "Stamping",
    "headers_of_answer",
    "is_pinned_around",
    "warn_of_what_went_unheard",
]

Headers = list[tuple[bytes, bytes]]

CONTRACT_KEY = "shelflife.contract"
"""Where in a scope or environ it is found which contract a request is under: what has pinned it last, which has its `provider`."""

_VOUCHING = {b"etag": b"W/"} | dict.fromkeys(
    (b"content-encoding", b"content-range", b"content-digest", b"repr-digest", b"digest", b"content-md5"),
    b"identity",
)
"""Headers that vouch for the very bytes of a body, each with the beginning of a value that does not."""

_BODILESS = frozenset({204, 205, 206, 304})
"""Statuses of responses that have no body, or only a part of one."""

_VERDICT = PRECONDITION_HEADER.lower().encode()


class Stamping(msgspec.Struct, eq=False):
    """One response, from its start to the first part of its body."""

    pin: Pin
    method: str
    status: int = 0
    length_at: int = -1
    """Where among the headers the length of the body is."""

    def begun(self, headers: Sequence[tuple[bytes, bytes]]) -> tuple[Sequence[tuple[bytes, bytes]], bool]:
        """The headers as they go out, and whether they wait for the body: it may take the stamp. The status is known by then."""
        pin = self.pin
        stamp = pin.shown.stamp
        is_stamped = bool(stamp.members) and pin.may_be_stamped(self.status)
        if not is_stamped and pin.verdict is None:
            return headers, False
        told = [*headers]  # an app may send the same list again and again
        if pin.verdict is not None:
            told.append((_VERDICT, pin.verdict.encode()))
        if not is_stamped:
            return told, False
        if stamp.beside:
            told += stamp.raw_beside
        if self.is_changeable(told):
            if self.method != "HEAD":
                return told, True
            if self.length_at >= 0:
                del told[self.length_at]
        told += stamp.raw_headers
        pin.shown.counts.stamped += 1
        return told, False

    def first_part(self, headers: Headers, body: bytes, *, is_all: bool) -> bytes:
        """The first part of the body as it goes out, and in the headers that have waited for it whatever it does not carry.

        `is_all` says that no more comes. That its length is the one in the headers says so too.
        """
        shown, at = self.pin.shown, self.length_at
        stamp = shown.stamp
        # Counted only now: a check between the start and this might still have refused the request.
        shown.counts.stamped += 1
        is_whole = is_all or (at >= 0 and headers[at][1] == b"%d" % len(body))
        whole = stamped(body, stamp) if is_whole else b""
        if not whole:
            headers += stamp.raw_headers
            return body
        if at >= 0:
            headers[at] = (headers[at][0], b"%d" % len(whole))
        return whole

    def is_changeable(self, headers: Headers) -> bool:
        """Whether the body may be one that takes the stamp, judged by the start of the response."""
        is_json, length_at = False, -1
        for at, (raw_name, value) in enumerate(headers):
            name = raw_name.lower()
            if name == b"content-type":
                is_json = _is_json(value)
            elif name == b"content-length":
                length_at = at
            elif name in _VOUCHING and not value.startswith(_VOUCHING[name]):
                return False
        self.length_at = length_at
        return is_json and self.status not in _BODILESS


def is_pinned_around(contract: Any, scope: MutableMapping[str, Any]) -> bool:
    """Whether a request that has come under some contract before, as its scope or environ says, is pinned by one of this provider around
    this. Else, where that was one of another provider, the app of this is mounted in the app of that, whose request it is no more."""
    outer = scope[CONTRACT_KEY]
    if outer.provider is contract.provider:
        return outer is not contract  # an app may call itself
    key = f"{CONTRACT_KEY} {id(contract.provider)}"
    if scope.get(key, contract) is not contract:
        return True
    scope[f"{CONTRACT_KEY} {id(outer.provider)}"] = outer
    if outer.provider.pin is not None:
        outer.provider.pin.hand_on()
    return False


def headers_of_answer(answer: Answer) -> Headers:
    """All the headers of an answer of the contract's own."""
    headers = encoded(answer.headers)
    if answer.content_type:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", b"%d" % len(answer.body)))
    return headers


CALL_CHECK = "call check in it first"


def warn_of_what_went_unheard(
    provider: Provider, pin: Pin, status: int, *, was_refusal: bool, remedy: str = CALL_CHECK
) -> None:
    """Warn an operator, once, of an operation that does not do what clients rely on. `was_refusal`: it has made a 500 of one.

    `remedy` says how preconditions come to be judged.
    """
    is_unjudged = pin.precondition is not None and pin.verdict is None
    is_unjudged = is_unjudged and not (pin.is_own_answer or pin.is_handed_on)
    if was_refusal:
        fault = "answered a refusal of check with 500; let Rejected through, or answer it"
    elif is_unjudged and status < 400:
        provider.counts.count("preconditions", "unjudged")
        fault = f"carries requests out without judging their preconditions; {remedy}"
    else:
        return
    operation = pin.find_operation()
    # A path that a client made up has no place in the log.
    is_known = operation is not None and provider.apps.has_operation(operation.name)
    provider.apps.warn_once(f"{operation.name if operation and is_known else 'an operation'} {fault}")


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    media_type, *parameters = content_type.lower().replace(b" ", b"").replace(b'"', b"").split(b";")
    charsets = {parameter for parameter in parameters if parameter.startswith(b"charset=")}
    return media_type in (b"application/json", b"application/problem+json") and charsets <= {b"charset=utf-8"}
