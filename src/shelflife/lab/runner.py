"""Play one run: a stream through the real server on loopback, with a real memory and a planner."""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec

import shelflife
from shelflife.client import EXACT, Store, Strategy
from shelflife.client.reading import read_account
from shelflife.errors import ShelflifeError
from shelflife.lab.agents import Agent, Surroundings
from shelflife.lab.apis import APIS
from shelflife.lab.arms import ARMS, OF_USERS, KeepsNothing
from shelflife.lab.clock import Clock
from shelflife.lab.engines import check_engines, stores_of_a_run
from shelflife.lab.over_mcp import over_mcp
from shelflife.lab.planners import Planner
from shelflife.lab.prompting import system_prompt
from shelflife.lab.records import FORMAT, Attempted, Drifted, Model, Record, RunStarted
from shelflife.lab.scenarios import BEFORE_THE_FIRST, Drift, Scenario, load
from shelflife.lab.servers import Server, guard_of, server_of
from shelflife.lab.slots import with_stale_slots
from shelflife.lab.spec import PLAIN, Conduct, RunSpec
from shelflife.lab.truth import Learned
from shelflife.lab.wordings import Wording, wordings

__all__ = ["LabError", "check_playable", "is_remembering", "play", "strategy_of"]

_memory_log = logging.getLogger("shelflife.memory")
_SILENT = logging.NullHandler()

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Servers of runs speak plain HTTP on loopback. So a client need not read the certificates of the world, and believes none."""
_LONGEST_RELOAD_S = 20
"""No reload waits longer for all workers: it is to be answered before the client gives up."""
_TIMEOUT_S = 30
_SAYS_NOTHING = 0
_LEVELS_OF_MATCHING = (1, 4)
"""At which the paper's own members tell all that they do of whom a fix is for: nothing."""
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


def wording_of(name: str) -> Wording:
    """One of the wordings in which planners are spoken to."""
    if name not in wordings():
        raise LabError(f"there is no wording {name!r}; there are {', '.join(wordings())}")
    return wordings()[name]


def is_remembering(arm: str) -> bool:
    """Whether an arm has a memory at all."""
    return ARMS.get(arm, OF_USERS).is_remembering


def play(
    spec: RunSpec,
    planner: Planner,
    record: Callable[[Record], None],
    *,
    scenario: Scenario | None = None,
    model: Model | None = None,
    digest: str = "",
    recorded: Sequence[Attempted] = (),
    on_episode: Callable[[], None] = lambda: None,
    on_server: Callable[[Server], None] = lambda server: None,
    longest_until_heard_s: float = 20,
) -> None:
    """Play a run to its end, and hand every record of it to `record`.

    The planner may be anybody's, as long as it bears the name that the spec has.

    - `scenario` is the stream itself, where it should not be loaded by its name.
    - `model` and `digest` are only written down.
    - `recorded` are the answers of an interrupted run. The planner is not asked again where the messages are the same.
    - `on_server` is handed the server, for whoever wants to look at it while the run is played.
    - Agents that follow the change feed must hear of each state within `longest_until_heard_s`, or the run ends. So must all workers.
    """
    scenario = with_stale_slots(load(spec.stream) if scenario is None else scenario).drawn_for(spec.seed)
    spec = msgspec.structs.replace(spec, stream=scenario.name)
    check_playable(spec, scenario)
    if planner.name != spec.planner:
        raise LabError(f"the run is one of {spec.planner!r}, and its planner is called {planner.name!r}")
    _memory_log.addHandler(_SILENT)  # what it warns of is on record
    record(_started(spec, scenario, planner, model, digest))
    clock = Clock()
    with clock.running("whole"), _stage(spec, scenario, planner, record, recorded, clock) as (server, around):
        on_server(server)
        with _agents(around) as agents:
            first_change = min((one.after for one in scenario.drift if one.after >= 0), default=None)

            def drift_after(index: int) -> None:
                if index == first_change and (scored := server.scored(index)) is not None:
                    record(scored)
                for drift in scenario.drift_after(index):
                    drifted = pushed(drift, around.http, server.admin_token, longest_until_heard_s)
                    judged = around.learned.judged()
                    told = server.as_agents_know_it(msgspec.structs.replace(drifted, judged=judged))
                    around.record(around.learned.without_most_of(told))
                    _wait_until_heard(agents, around, longest_until_heard_s)

            _wait_until_heard(agents, around, longest_until_heard_s)
            drift_after(BEFORE_THE_FIRST)
            for episode in scenario.episodes(spec.seed):
                for agent in agents:
                    agent.play_episode(episode)
                drift_after(episode.index)
                server.clock.go_on(scenario.minutes_until(episode.index + 1) if spec.conduct.foresees else 1)
                on_episode()
        if (scored := server.scored(len(scenario.order) - 1)) is not None:
            record(scored)
        if (disclosed := server.disclosed()) is not None:
            record(disclosed)
    record(clock.as_record())


def check_playable(spec: RunSpec, scenario: Scenario) -> None:
    """Raise what cannot be played together, in one sentence."""
    level, conduct = spec.level, spec.conduct
    wording_of(spec.wording)
    if level == _SAYS_NOTHING and conduct.trust:
        raise LabError("there are no states to sign: at Level 0 a server tells nothing of its state")
    if level == _SAYS_NOTHING and conduct.fresh == "feed":
        raise LabError("there is no change feed to follow: at Level 0 a server tells nothing of its state")
    if conduct.workers > 1 and (alone := _only_in_one_process(conduct, scenario)):
        raise LabError(f"{alone} is played with a server in one process: leave --workers out")
    if conduct.workers == 1 and conduct.log != PLAIN.log:
        raise LabError(f"--log {conduct.log} is for several workers: give --workers too")
    check_engines(conduct)
    if conduct.over == "mcp" and (not_over_mcp := _only_over_http(conduct, scenario)):
        raise LabError(f"{not_over_mcp} is played over HTTP: leave --over out")
    is_plain = level in _LEVELS_OF_MATCHING and conduct == Conduct(match=conduct.match)
    if conduct.match != "request" and not is_plain:
        levels = " or ".join(map(str, _LEVELS_OF_MATCHING))
        raise LabError(
            f"--match {conduct.match} is for a server that does not say what its fixes are for, as in the paper:"
            f" play it with --level {levels}, and with no other conduct"
        )
    if conduct.fresh == "feed" and scenario.hostile in _NOT_TO_BE_FOLLOWED:
        raise LabError(
            f"a server that {scenario.hostile} has no feed that tells of its state: play it with another --fresh"
        )


def _only_in_one_process(conduct: Conduct, scenario: Scenario) -> str | None:
    """What needs a server whose clock, words or answers the lab has a hand in."""
    if scenario.hostile:
        return f"the stream {scenario.name}, on which the server {scenario.hostile},"
    if conduct.trust:
        return "--trust"
    return None if conduct.disclose == "names" else f"--disclose {conduct.disclose}"


def _only_over_http(conduct: Conduct, scenario: Scenario) -> str | None:
    """What needs a server that is HTTP alone."""
    if APIS[scenario.api].tools is None:
        return f"the stream {scenario.name}, whose API is no MCP server,"
    if scenario.hostile:
        return f"the stream {scenario.name}, on which the server {scenario.hostile},"
    if conduct.workers > 1:
        return "--workers"
    return "--fresh feed" if conduct.fresh == "feed" else None


@contextmanager
def _stage(
    spec: RunSpec,
    scenario: Scenario,
    planner: Planner,
    record: Callable[[Record], None],
    recorded: Sequence[Attempted],
    clock: Clock,
) -> Iterator[tuple[Server, Surroundings]]:
    """The server of a run, on loopback, and all that its agents have in common."""
    # any worker may have to answer, so nobody stays with the one that was met first
    limits = httpx2.Limits(max_keepalive_connections=None if spec.conduct.workers == 1 else 0)
    with (
        server_of(spec, scenario, clock.timing_app) as server,
        _transport(spec, APIS[scenario.api].operation, server, limits) as transport,
        httpx2.Client(base_url=server.address, timeout=_TIMEOUT_S, transport=transport) as http,
    ):
        yield (
            server,
            Surroundings(
                api=APIS[scenario.api],
                origin=server.address,
                http=http,
                strategy=strategy_of(spec.arm),
                is_remembering=is_remembering(spec.arm),
                planner=planner,
                consume=spec.consume,
                conduct=spec.conduct,
                wording=wording_of(spec.wording),
                record=_one_at_a_time(record),
                clock=clock,
                recorded={(one.agent, one.episode, one.attempt): one for one in recorded},
                learned=Learned(APIS[scenario.api].operation, scenario.wants or {}, server.provider),
                guard=guard_of(scenario, spec.conduct),
                trust=server.trust,
                now=server.clock if spec.conduct.goes_by_episodes else time.time,
                wants=scenario.wants or {},
            ),
        )


def _transport(
    spec: RunSpec, operation: str, server: Server, limits: httpx2.Limits
) -> AbstractContextManager[httpx2.BaseTransport]:
    """What brings the requests of a run to its server."""
    plain = httpx2.HTTPTransport(verify=_NO_TLS, trust_env=False, limits=limits)
    return plain if spec.conduct.over == "http" else over_mcp(server.address, operation, plain)


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
        stores: Sequence[Store | None]
        if not surroundings.is_remembering:
            stores = [KeepsNothing() for _ in range(count)]
        else:
            stores = stack.enter_context(stores_of_a_run(surroundings.conduct))
        agents = [Agent(number, surroundings, store) for number, store in enumerate(stores)]
        for agent in agents:
            stack.enter_context(agent.following())
        yield agents


def _wait_until_heard(agents: Sequence[Agent], around: Surroundings, longest_s: float) -> None:
    """Where agents follow the change feed, go on when all of them have heard of the server's state."""
    if around.conduct.fresh != "feed":
        return
    position = read_account(around.http.get("/contract/changes?from=*").content).to
    if not all(agent.has_heard(position, longest_s) for agent in agents):
        raise LabError(f"the change feed has not told of the server's state within {longest_s} s")


def pushed(drift: Drift, http: httpx2.Client, token: str, longest_s: float = 0) -> Drifted:
    """Make a drift happen through the server's admin endpoints, for all its workers, and what it reports."""
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
    change["wait_s"] = min(longest_s, _LONGEST_RELOAD_S)
    response = http.post(
        path,
        content=msgspec.json.encode(change),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    if not response.is_success:
        says = response.json().get("error", response.text)
        raise LabError(f"the server refused the drift after episode {drift.after}: {says}")
    report = response.json()
    workers = report.get("workers")  # absent when that could not be found out
    if workers is None or workers["behind"]:
        how_many = f"{workers['behind']} of {workers['live']}" if workers else "some"
        raise LabError(
            f"{how_many} workers have not come to the state after the drift of episode {drift.after} within {longest_s:g} s"
        )
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
    spec: RunSpec, scenario: Scenario, planner: Planner, model: Model | None, digest: str
) -> RunStarted:
    families = scenario.families
    return RunStarted(
        format=FORMAT,
        spec=spec,
        title=scenario.title,
        api=scenario.api,
        planner_kind=planner.kind,
        tuned_to=getattr(planner, "tuned_to", None),  # only those that are tuned have it
        model=model,
        hostile=scenario.hostile or None,
        digest=digest,
        is_remembering=is_remembering(spec.arm),
        classes=[families[name].in_class for name in scenario.order],
        families=scenario.order,
        hints={name: family.hint for name, family in families.items() if family.hint},
        governed=scenario.governed,
        eligible=scenario.eligible,
        first_meetings=sorted(scenario.first_meetings),
        stale_slots=scenario.stale_slots or [],
        split=scenario.split,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        version=shelflife.__version__,
        system=system_prompt(APIS[scenario.api], spec.consume, wording_of(spec.wording)),
        wording=wording_of(spec.wording),
        history=scenario.history or None,
    )
