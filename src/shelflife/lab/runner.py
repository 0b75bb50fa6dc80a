"""Play one run: a stream through the real server on loopback, with a real memory and a planner."""

import logging
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import msgspec

import shelflife
from shelflife.client import ARMS, EXACT, SqliteStore
from shelflife.client.strategies import Strategy
from shelflife.contract.compact import epoch_of
from shelflife.contract.reading import read_state
from shelflife.errors import ShelflifeError
from shelflife.lab.agents import Agent, Surroundings
from shelflife.lab.apis import APIS
from shelflife.lab.clock import Clock
from shelflife.lab.conduct import PLAIN, Conduct
from shelflife.lab.planners import Planner
from shelflife.lab.prompting import Consume
from shelflife.lab.records import Attempted, Drifted, Model, Record, RunStarted
from shelflife.lab.scenarios import Drift, Scenario
from shelflife.lab.servers import guard_of, server_of
from shelflife.testing import serving

__all__ = ["LabError", "check_playable", "play", "strategy_of"]

_memory_log = logging.getLogger("shelflife.memory")
_SILENT = logging.NullHandler()

_TIMEOUT_S = 30
_LONGEST_UNTIL_HEARD_S = 20
_SAYS_NOTHING = 0
_NOT_TO_BE_FOLLOWED = ("bumps", "pins", "lies")


class LabError(ShelflifeError):
    """A run cannot be played: one sentence for people."""


def strategy_of(arm: str) -> Strategy:
    """The strategy of an arm; `exact` is the default that users have."""
    if arm == EXACT.name:
        return EXACT
    if arm not in ARMS:
        raise LabError(f"there is no arm {arm!r}; there are {', '.join(ARMS)} and {EXACT.name}")
    return ARMS[arm]


def play(
    scenario: Scenario,
    arm: str,
    planner: Planner,
    record: Callable[[Record], None],
    *,
    seed: int = 0,
    consume: Consume = Consume.LEVEL_3,
    level: int = 6,
    conduct: Conduct = PLAIN,
    model: Model | None = None,
    digest: str = "",
    recorded: Sequence[Attempted] = (),
    on_episode: Callable[[], None] = lambda: None,
) -> None:
    """Play a stream once and record what happens.

    The planner is not asked again where its answer to the same messages is among those `recorded` by a run that was interrupted.
    The `digest` is written down as it is: of which edition of the stream the run is, and of the model at which address.
    """
    strategy = strategy_of(arm)
    check_playable(scenario, level, conduct)
    _memory_log.addHandler(_SILENT)  # what it warns of is on record
    record(_started(scenario, arm, planner, seed, consume, level, conduct, model, digest))
    clock = Clock()
    token = secrets.token_urlsafe()
    with (
        clock.running("whole"),
        server_of(scenario, conduct, level, token) as server,
        serving(clock.timing_app(server.app)) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=_TIMEOUT_S) as http,
    ):
        surroundings = Surroundings(
            api=APIS[scenario.api],
            origin=address,
            http=http,
            strategy=strategy,
            planner=planner,
            consume=consume,
            conduct=conduct,
            record=_one_at_a_time(record),
            clock=clock,
            recorded={(one.agent, one.episode, one.attempt): one for one in recorded},
            learned_in={},
            guard=guard_of(scenario, conduct),
            trust=server.trust_in(address),
            now=server.clock if conduct.trust else time.time,
            wants=scenario.wants or {},
        )
        with _agents(surroundings) as agents:
            _wait_until_heard(agents, http, conduct)
            for episode in scenario.episodes(seed):
                for agent in agents:
                    agent.play_episode(episode)
                for drift in scenario.drift_after(episode.index):
                    surroundings.record(server.as_agents_know_it(pushed(drift, http, token)))
                    _wait_until_heard(agents, http, conduct)
                server.clock.go_on()
                on_episode()
        if (disclosed := server.disclosed()) is not None:
            record(disclosed)
    record(clock.as_record())


def check_playable(scenario: Scenario, level: int, conduct: Conduct) -> None:
    """Raise what cannot be played together, in one sentence."""
    if level == _SAYS_NOTHING and conduct.trust:
        raise LabError("there are no states to sign: at Level 0 a server tells nothing of its state")
    if level == _SAYS_NOTHING and conduct.fresh == "feed":
        raise LabError("there is no change feed to follow: at Level 0 a server tells nothing of its state")
    if conduct.fresh == "feed" and scenario.hostile in _NOT_TO_BE_FOLLOWED:
        raise LabError(
            f"a server that {scenario.hostile} has no feed that tells of its state: play it with another --fresh"
        )


def _one_at_a_time(record: Callable[[Record], None]) -> Callable[[Record], None]:
    """What is heard of a feed is recorded in a thread of its own."""
    recording = threading.Lock()

    def recorded(one: Record) -> None:
        with recording:
            record(one)

    return recorded


@contextmanager
def _agents(surroundings: Surroundings) -> Iterator[list[Agent]]:
    """The agents of a run, each following the feed if that is their conduct."""
    count = surroundings.conduct.agents
    with ExitStack() as stack:
        stores = [None] if count == 1 else stack.enter_context(_over_one_file(count))
        agents = [Agent(number, surroundings, store) for number, store in enumerate(stores)]
        for agent in agents:
            stack.enter_context(agent.following())
        yield agents


@contextmanager
def _over_one_file(count: int) -> Iterator[list[SqliteStore]]:
    with tempfile.TemporaryDirectory(prefix="shelflife-lab-") as folder, ExitStack() as stack:
        path = Path(folder) / "memory.db"
        yield [stack.enter_context(closing(SqliteStore(path))) for _ in range(count)]


def _wait_until_heard(agents: Sequence[Agent], http: httpx2.Client, conduct: Conduct) -> None:
    """Where agents follow the change feed, go on when all of them have heard of the server's state."""
    if conduct.fresh != "feed":
        return
    state = read_state(http.get("/contract/state").content)
    epoch = epoch_of(state.table_versions, state.rules_version or None)
    if not all(agent.has_heard(epoch, _LONGEST_UNTIL_HEARD_S) for agent in agents):
        raise LabError(
            f"the change feed has not told of the server's state within {_LONGEST_UNTIL_HEARD_S} s"
        )


def pushed(drift: Drift, http: httpx2.Client, token: str) -> Drifted:
    """Make a drift happen through the server's admin endpoints, and what it reports."""
    if drift.table is not None:
        path = "/admin/reload-table"
        change: dict[str, Any] = {"table": drift.table}
        if drift.rows is not None:
            change["rows"] = drift.rows
        else:
            change |= {"set": drift.set or {}, "remove": drift.remove}
        if drift.version is not None:
            change["version"] = drift.version
    else:
        path = "/admin/reload-rules"
        change = {"add": drift.add_rules, "remove": drift.remove_rules}
    response = http.post(
        path,
        content=msgspec.json.encode(change),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    if not response.is_success:
        raise LabError(f"the server refused the drift after episode {drift.after}: {response.text}")
    report = response.json()
    keys = [*report.get("added", ()), *report.get("removed", ()), *report.get("changed", ())]
    is_of_table = drift.table is not None
    return Drifted(
        after=drift.after,
        says=drift.says,
        table=drift.table,
        rows=[f"{drift.table}:{key}" for key in keys] if is_of_table else [],
        rules=[] if is_of_table else [f"{rule['from']}:{rule['relation']}" for rule in keys],
    )


def _started(
    scenario: Scenario,
    arm: str,
    planner: Planner,
    seed: int,
    consume: Consume,
    level: int,
    conduct: Conduct,
    model: Model | None,
    digest: str,
) -> RunStarted:
    families = scenario.families
    return RunStarted(
        stream=scenario.name,
        title=scenario.title,
        api=scenario.api,
        arm=arm,
        planner=planner.name,
        planner_kind=planner.kind,
        is_tuned_to_the_paper=planner.name.startswith("sim:"),
        model=model,
        seed=seed,
        consume=consume.value,
        level=level,
        conduct=conduct,
        hostile=scenario.hostile or None,
        digest=digest,
        is_remembering=strategy_of(arm).is_remembering,
        classes=[families[name].in_class for name in scenario.order],
        families=scenario.order,
        hints={name: family.hint for name, family in families.items() if family.hint},
        governed=scenario.governed,
        eligible=scenario.eligible,
        first_meetings=sorted(scenario.first_meetings),
        stale_slots=scenario.stale_slots,
        split_after=scenario.split_after,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        version=shelflife.__version__,
    )
