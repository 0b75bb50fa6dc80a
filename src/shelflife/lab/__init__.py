"""The lab: what measures memory, servers and planners."""

from shelflife.lab.planners import Message, Planner, PlannerError, Proposal, Usage

__all__ = ["Message", "Planner", "PlannerError", "Proposal", "Usage"]
