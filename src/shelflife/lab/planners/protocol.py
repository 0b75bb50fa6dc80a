"""What the lab needs of a planner: messages in, a proposal out, and what it cost."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from shelflife.errors import ShelflifeError

__all__ = ["Message", "Planner", "PlannerError", "Proposal", "Usage"]


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation with a planner."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(msgspec.Struct, frozen=True):
    """The tokens of one answer, as they are billed."""

    prompt: int
    completion: int
    source: Literal["vendor", "estimated"]


class Proposal(msgspec.Struct, frozen=True):
    """What a planner proposes."""

    text: str
    """What the planner answered; the lab reads the JSON request out of it."""

    usage: Usage
    served: str | None = None
    """The model that the vendor says it served; None for simulated planners."""


class PlannerError(ShelflifeError):
    """The planner cannot answer: one sentence for people."""


class Planner(Protocol):
    """Turns a conversation into the next proposal. Any class with these three members will do."""

    name: str
    """What it is called in records and exhibits."""

    kind: Literal["simulated", "model"]
    """Whether a model answers, or something that stands in for one."""

    def propose(self, messages: Sequence[Message]) -> Proposal:
        """Answer the last message; `PlannerError` when there is no answer."""
