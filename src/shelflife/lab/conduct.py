"""How an agent goes about its requests where it does more than the paper's: what a run is played with beside its arm."""

from typing import Literal

import msgspec

__all__ = ["PLAIN", "Conduct", "Disclose", "Form", "Fresh", "Guarding"]

Form = Literal["full", "compact"]
Fresh = Literal["none", "check", "feed"]
Guarding = Literal["open", "default", "fields"]
Disclose = Literal["names", "aliases", "counts"]


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

    guard: Guarding = "open"
    """What a remembered fix may set: all but credentials and addresses, what a guard lets through by default, or the fields of the stream alone."""

    bound: int | None = None
    """How many entries may be evicted within an hour; beyond that they are suspect, and checked before they are used. None for any number."""

    trust: bool = False
    """Whether the server signs its states, and the memory believes nothing else."""

    disclose: Disclose = "names"
    """What the server shows of its tables: their names and keys, aliases in their place, or aliases and of diffs only how many."""

    @property
    def words(self) -> tuple[str, ...]:
        """What is not as in the paper."""
        told = (
            (self.form, self.form != "full"),
            (self.fresh, self.fresh != "none"),
            ("precondition", self.precondition),
            (f"{self.agents} agents", self.agents != 1),
            (f"guard {self.guard}", self.guard != "open"),
            (f"bound {self.bound}", self.bound is not None),
            ("trust", self.trust),
            (self.disclose, self.disclose != "names"),
        )
        return tuple(word for word, is_told in told if is_told)


PLAIN = Conduct()
"""The paper's."""
