"""Clients of which it is known what they are, for a server that is to find it out from their requests."""

from shelflife.client import EXACT
from shelflife.server.verdicts import Verdict

__all__ = ["KNOWN"]

_FOLLOWS: Verdict = "remembers and follows"

KNOWN: dict[tuple[str, str], Verdict] = {
    ("A0", "compliant"): "does not remember",
    ("A2D", "forgetful"): "does not remember",
    ("A1", "compliant"): "remembers and does not forget",
    ("A2", "compliant"): "forgets too much",
    ("A2D", "compliant"): _FOLLOWS,
    ("A2DC", "compliant"): _FOLLOWS,
    ("A2DG", "compliant"): _FOLLOWS,
    (EXACT.name, "compliant"): _FOLLOWS,
    ("A1", "compliant-last"): _FOLLOWS,
    ("A2D", "conservative"): "does not comply with added fields",
}
"""By arm and planner, which is how a client of the lab is made."""
