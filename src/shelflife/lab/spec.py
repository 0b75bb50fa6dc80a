"""What a run is: which stream is played by which planner with which arm, and how."""

from enum import StrEnum
from typing import Literal

import msgspec

__all__ = [
    "ADDRESSES",
    "PLAIN",
    "PLAIN_CONSUME",
    "PLAIN_LEVEL",
    "PLAIN_WORDING",
    "Conduct",
    "Consume",
    "Disclose",
    "Form",
    "Fresh",
    "Guarding",
    "LogKind",
    "Match",
    "Over",
    "Reads",
    "RunSpec",
    "StoreKind",
]

Form = Literal["full", "compact"]
Fresh = Literal["none", "check", "feed", "use", "heuristic", "forecast"]
Guarding = Literal["open", "default", "fields"]
Disclose = Literal["names", "aliases", "counts"]
Match = Literal["request", "family", "operation", "absent"]
Reads = Literal["whole", "needed"]
Over = Literal["http", "mcp"]
LogKind = Literal["file", "postgres"]
StoreKind = Literal["local", "sqlite", "postgres", "valkey"]

ADDRESSES = {"postgres": "SHELFLIFE_POSTGRES_URL", "valkey": "SHELFLIFE_VALKEY_URL"}
"""The variables that have the addresses of engines. These may hold passwords, so no run is made of them."""


PLAIN_STALE_COSTS = 3.0
"""How many questions a stale use is worth, unless somebody says otherwise."""


class Consume(StrEnum):
    """How a remembered fix reaches the request."""

    LEVEL_1 = "1"
    """It is listed in the prompt, and no sentence of it says to merge what is suggested."""

    LEVEL_2 = "2"
    """It is listed in the prompt, to be merged verbatim."""

    LEVEL_3 = "3"
    """The prompt shows the input already amended."""

    APPLY = "apply"
    """The client writes it into the request."""


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """What agents and server have agreed beside the arm. The defaults are the paper's."""

    form: Form = "full"
    """The form of the contract on the wire. For the compact one, requests say which state their agent knows."""

    fresh: Fresh = "none"
    """How a memory hears of drift before a request fails.

    Not at all, by asking at the start of each episode, by following the change feed, by asking before each use, or by asking before a use
    where it may have changed: after a tenth of the time for which it had been good, or by a forecast.
    """

    stale_costs: float = PLAIN_STALE_COSTS
    """How many questions a stale use is worth to a forecast."""

    precondition: bool = False
    """Whether the server is to refuse a request when what its remembered values rest on has moved."""

    agents: int = 1
    """How many play each episode one after another, over one shared memory."""

    guard: Guarding = "open"
    """What a remembered fix may set.

    All but credentials and addresses, what a guard lets through by default, or the fields of the stream alone.
    """

    bound: int | None = None
    """How many entries may be evicted within an hour; None for any number.

    Those beyond are suspect: the server is asked before they are used.
    """

    trust: bool = False
    """Whether the server signs its states, and the memory believes nothing else."""

    disclose: Disclose = "names"
    """What the server shows of its tables.

    Their names and keys, aliases in their place, or aliases and only the number of rows that changed.
    """

    workers: int = 1
    """How many processes the server has, over one log. With one it is a part of the lab's own."""

    log: LogKind = "file"
    """Where the processes of the server keep the log that they share."""

    store: StoreKind = "local"
    """Where the agents keep their memory. Locally, one agent has it in its process, and several share a file."""

    match: Match = "request"
    """Which requests a remembered fix is taken to be for, by a client and a server that know the paper's members alone.

    The identical one, all of the same family of tasks, all of the same operation, or all that lack what it sets.
    """

    reads: Reads = "whole"
    """What a planner reads of an answer: all of it, or what it needs, without what only the memory reads."""

    over: Over = "http"
    """What agents and server speak: HTTP, or MCP, where a request is the call of a tool."""

    @property
    def names_positions(self) -> bool:
        """Whether requests say which position of the server's log their agent knows. A precondition does so by itself."""
        return self.form == "compact" or self.fresh != "none" or self.trust

    @property
    def goes_by_episodes(self) -> bool:
        """Whether the time of memories goes on with the episodes: where something expires, or is foreseen."""
        return self.trust or self.foresees

    @property
    def foresees(self) -> bool:
        """Whether agents decide before each use whether to ask."""
        return self.fresh in ("use", "heuristic", "forecast")

    @property
    def words(self) -> tuple[str, ...]:
        """What is not as in the paper."""
        told = (
            (self.form, self.form != "full"),
            (self.fresh, self.fresh != "none"),
            (f"stale costs {self.stale_costs:g}", self.stale_costs != PLAIN_STALE_COSTS),
            ("precondition", self.precondition),
            (f"{self.agents} agents", self.agents != 1),
            (f"guard {self.guard}", self.guard != "open"),
            (f"bound {self.bound}", self.bound is not None),
            ("trust", self.trust),
            (self.disclose, self.disclose != "names"),
            (f"{self.workers} workers", self.workers != 1),
            (f"log {self.log}", self.log != "file"),
            (f"store {self.store}", self.store != "local"),
            (f"match {self.match}", self.match != "request"),
            (f"reads {self.reads}", self.reads != "whole"),
            (f"over {self.over}", self.over != "http"),
        )
        return tuple(word for word, is_told in told if is_told)


PLAIN = Conduct()
"""The paper's conduct."""

PLAIN_CONSUME = Consume.LEVEL_3
"""How the paper's fixes reach a request."""

PLAIN_LEVEL = 6
"""The level of the paper's server."""

PLAIN_WORDING = "plain"
"""The wording in which a planner is spoken to, unless somebody says otherwise."""


class RunSpec(msgspec.Struct, frozen=True):
    """One run: what is played, by whom and how. The defaults are the paper's.

    The same value is what a run is started with, what its records begin with, and what its score is of.
    """

    stream: str
    """A stream that comes with the lab, by its name, or the path of a `.toml` file. In records it is always the name."""

    arm: str
    """What the client does with what the server says, such as `A2D`."""

    planner: str
    """What the planner is called."""

    seed: int = 0
    """Chooses the values that make no difference to any policy, and the chance of a seeded planner."""

    consume: Consume = PLAIN_CONSUME
    level: int = PLAIN_LEVEL
    """How much the server tells: 0, 1, 4, 5 or 6."""

    conduct: Conduct = PLAIN
    wording: str = PLAIN_WORDING
    """In which of the lab's wordings the planner is spoken to."""

    def __post_init__(self) -> None:
        """Whoever writes `consume="apply"` means it."""
        msgspec.structs.force_setattr(self, "consume", Consume(self.consume))
