"""The lab: what measures memory, servers and planners.

records = []
play(RunSpec("drifted", "A2D", planner.name), planner, records.append)
print(score_of(records).retries)
"""

from typing import TYPE_CHECKING, Any

from shelflife.lab.planners.models import ModelPlanner, Probe
from shelflife.lab.planners.protocol import Message, Planner, PlannerError, Proposal, Usage
from shelflife.lab.records import Record, RecordFile
from shelflife.lab.scores import RunScore, score_of
from shelflife.lab.spec import Conduct, Consume, RunSpec

if TYPE_CHECKING:
    from shelflife.lab.runner import LabError, play

__all__ = [
    "Conduct",
    "Consume",
    "LabError",
    "Message",
    "ModelPlanner",
    "Planner",
    "PlannerError",
    "Probe",
    "Proposal",
    "Record",
    "RecordFile",
    "RunScore",
    "RunSpec",
    "Usage",
    "play",
    "score_of",
]


def __getattr__(name: str) -> Any:
    """Playing needs servers and HTTP, which the extra `lab` brings. All else is there without it."""
    if name not in ("LabError", "play"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shelflife.extras import needing

    with needing("lab"):
        from shelflife.lab import runner
    return getattr(runner, name)
