"""How an agent goes about its requests where it does more than the paper's: what a run is played with beside its arm."""

from typing import Literal

import msgspec

__all__ = ["PLAIN", "Conduct", "Form", "Fresh"]

Form = Literal["full", "compact"]
Fresh = Literal["none", "check", "feed"]


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """What is agreed between agents and server; the defaults are the paper's."""

    form: Form = "full"
    """Of the contract on the wire; for the compact one, requests say which state their agent knows."""

    fresh: Fresh = "none"
    """How a memory hears of drift before it fails: not, by asking at the start of an episode, or by following the change feed."""

    precondition: bool = False
    """Whether a request that carries remembered values asks not to be carried out when what they rest on has moved."""

    agents: int = 1
    """How many play each episode one after another, over one shared memory."""

    @property
    def words(self) -> tuple[str, ...]:
        """What is not as in the paper."""
        told = (
            (self.form, self.form != "full"),
            (self.fresh, self.fresh != "none"),
            ("precondition", self.precondition),
            (f"{self.agents} agents", self.agents != 1),
        )
        return tuple(word for word, is_told in told if is_told)


PLAIN = Conduct()
"""The paper's."""
