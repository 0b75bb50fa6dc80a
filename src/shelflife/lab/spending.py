"""What a run has cost: tokens of its planner, and bytes on the wire."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from shelflife.lab.records import Asked, Attempted
from shelflife.lab.wire import contract_fields_in

__all__ = ["FieldBytes", "Tokens", "Wire", "tokens_of", "wire_of"]


class Tokens(msgspec.Struct, frozen=True):
    """What the planner was sent and answered."""

    prompt: int
    completion: int
    source: Literal["vendor", "estimated"]

    @property
    def total(self) -> int:
        return self.prompt + self.completion


class FieldBytes(msgspec.Struct, frozen=True):
    """How often a member of the contract stood in responses, and what it took: its name, the colon and its value."""

    times: int
    bytes: int


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What went over the wire between agent and server."""

    responses: int
    bytes: int
    """Of responses: their bodies, and the contract's headers."""

    contract_bytes: int
    carrying: int
    """The responses that had anything of the contract."""

    most_contract_bytes: int
    """Of one response."""

    fields: dict[str, FieldBytes]
    """The members of the contract in the bodies of responses, without the position."""

    request_bytes: int
    contract_request_bytes: int
    """Of the contract's headers of requests, which come to the bytes of their bodies."""

    other_header_bytes: int
    """Of start lines and all other headers, both ways."""

    questions: int
    """How often the memory asked something of its own accord, or was told something by the change feed."""

    question_bytes: int
    """Of what the memory asked of its own accord, and was told by the change feed: URLs, and bodies both ways."""

    question_whole_bytes: int
    """Of the same, whole messages as HTTP/1.1 has them."""

    @property
    def contract_percent(self) -> float | None:
        """The share of the contract in the bytes of the responses."""
        return 100 * self.contract_bytes / self.bytes if self.bytes else None

    @property
    def contract_percent_both_ways(self) -> float | None:
        """The share of the contract in all bytes of requests and responses together, as HTTP/1.1 has them."""
        return self._percent(0)

    @property
    def contract_percent_in_all(self) -> float | None:
        """The same with all that is asked and told beside requests, every byte of which is the contract's."""
        return self._percent(self.question_whole_bytes)

    def _percent(self, beside: int) -> float | None:
        contract = self.contract_bytes + self.contract_request_bytes + beside
        others = (self.bytes - self.contract_bytes) + self.request_bytes + self.other_header_bytes
        whole = contract + others
        return 100 * contract / whole if whole else None


def tokens_of(attempts: Sequence[Attempted]) -> Tokens:
    """What the planner of some attempts was sent and answered."""
    return Tokens(
        sum(one.prompt_tokens for one in attempts),
        sum(one.completion_tokens for one in attempts),
        "vendor" if {one.token_source for one in attempts} == {"vendor"} else "estimated",
    )


def wire_of(attempts: Sequence[Attempted], asked: Sequence[Asked]) -> Wire:
    """What some attempts sent and were sent, and what was asked beside them."""
    return Wire(
        responses=sum(one.mended + 1 for one in attempts if one.status is not None),
        bytes=sum(one.response_bytes for one in attempts),
        contract_bytes=sum(one.contract_bytes for one in attempts),
        carrying=sum(one.mended + 1 for one in attempts if one.contract_bytes),
        most_contract_bytes=max((one.contract_bytes for one in attempts if not one.mended), default=0),
        fields=_fields(attempts),
        request_bytes=sum(one.request_bytes for one in attempts),
        contract_request_bytes=sum(one.contract_request_bytes for one in attempts),
        other_header_bytes=sum(one.other_header_bytes for one in attempts),
        questions=len(asked),
        question_bytes=sum(record.question_bytes for record in asked),
        question_whole_bytes=sum(record.whole_bytes for record in asked),
    )


def _fields(attempts: Sequence[Attempted]) -> dict[str, FieldBytes]:
    sizes: dict[str, list[int]] = {}
    for one in attempts:
        for name, size in contract_fields_in(one.answer):
            sizes.setdefault(name, []).append(size)
    return {name: FieldBytes(len(found), sum(found)) for name, found in sizes.items()}
