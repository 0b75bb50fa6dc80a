"""What a server puts on the wire. Levels 2 and 3 are the client's and change no byte."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from msgspec import UNSET, structs

from shelflife.contract import Suggestion
from shelflife.contract.messages import ReloadReport
from shelflife.server.errors import BadSetting

__all__ = ["ErrorForm", "Level", "WireFormat"]

ErrorForm = Literal["json", "problem"]
"""How errors are written: the paper's JSON, or `application/problem+json` with the same members."""


class Level(IntEnum):
    """A wire level. Each adds only its own fields to the one below."""

    PLAIN_TEXT = 0
    """A plain-text error: nothing to keep."""

    STAMPS = 1
    """Typed suggestions with `cache_hint` and `table`, and `table_versions` on responses."""

    VECTORS = 4
    """Adds `tables` to a suggestion, and beyond the paper `rows`, `cells`, `rules`, `when` and `unless`."""

    GRAPH = 5
    """Adds the graph, and `affected_downstream` to reload reports and changes."""

    FINGERPRINT = 6
    """Adds `rules_version` to them."""

    __hash__ = (
        int.__hash__
    )  # that of an enum is Python's own code, and every request looks up what its level shows


@dataclass(frozen=True, kw_only=True, slots=True)
class WireFormat:
    """How much of the contract a provider's answers show, and in which form."""

    level: int = Level.FINGERPRINT
    """The wire level: 0, 1, 4, 5 or 6."""

    errors: ErrorForm = "json"
    """The form of errors, for clients whose `Accept` header does not prefer one."""

    paper_only: bool = False
    """Leave out the members of a suggestion that the paper does not know."""

    def __post_init__(self) -> None:
        if self.level not in [*Level]:
            raise BadSetting(f"there is no wire level {self.level!r}; there are 0, 1, 4, 5 and 6")
        if self.errors not in ("json", "problem"):
            raise BadSetting(f"errors are written as json or as problem, not as {self.errors!r}")

    @property
    def tells_versions(self) -> bool:
        """Whether a client that names positions is told the versions too: its fixes do not say what they rest on."""
        return self.level < Level.VECTORS or self.paper_only

    def suggestion(self, suggestion: Suggestion) -> Suggestion:
        """What of a suggestion goes on the wire."""
        hidden: list[str] = []
        if self.tells_versions:
            hidden += ("rows", "cells", "rules", "when", "unless")
        if self.level < Level.VECTORS:
            hidden.append("tables")
        return structs.replace(suggestion, **dict.fromkeys(hidden, UNSET)) if hidden else suggestion

    def report(self, report: ReloadReport) -> ReloadReport:
        """What of a report goes on the wire."""
        return report if self.level >= Level.GRAPH else structs.replace(report, affected_downstream=UNSET)
