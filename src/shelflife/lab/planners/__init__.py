"""The planners: what the lab needs of one, and those that come with it."""

from shelflife.lab.planners.protocol import Message, Planner, PlannerError, Proposal, Usage

__all__ = ["Message", "Planner", "PlannerError", "Proposal", "Usage"]
