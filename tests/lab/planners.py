"""Planners that stand in for models: one counts what it is asked, one begins with prose."""

from shelflife.lab.planners import PlannerError, Proposal, Usage
from shelflife.lab.planners.simulated import simulated_planner


class Counting:
    """A planner that answers as the compliant one does, counts, and may lose its connection."""

    name = "counting"
    kind = "model"

    def __init__(self, breaks_at=None):
        self.count = 0
        self.breaks_at = breaks_at
        self.inner = simulated_planner("compliant", 0, frozenset())

    def propose(self, messages):
        self.count += 1
        if self.count == self.breaks_at:
            raise PlannerError("the vendor is gone")
        proposal = self.inner.propose(messages)
        return Proposal(proposal.text, Usage(1000, 10, "vendor"), "counting-1")


class Babbling(Counting):
    """A planner whose first answer to every task is prose."""

    def propose(self, messages):
        if len(messages) == 2:
            return Proposal("I would rather not.", Usage(1, 1, "vendor"))
        return super().propose([*messages[:2]])
