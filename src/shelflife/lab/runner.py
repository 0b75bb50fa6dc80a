"""Play one run: a stream through the real server on loopback, with a real memory and a planner."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec

import shelflife
from shelflife.client import ARMS, EXACT, Entry, Fetched, Memory, events
from shelflife.client.guard import Guard
from shelflife.client.memory import Exchange
from shelflife.client.strategies import Strategy
from shelflife.lab import prompting
from shelflife.lab.apis import APIS, Api
from shelflife.lab.planners import Message, Planner, Proposal, Usage
from shelflife.lab.prompting import Consume, digest_of_messages, messages_for, request_in
from shelflife.lab.records import (
    Alerted,
    Asked,
    Attempted,
    Drifted,
    EpisodeEnded,
    Evicted,
    Model,
    Record,
    Restamped,
    RunEnded,
    RunStarted,
    Shown,
)
from shelflife.lab.scenarios import Drift, Episode, Scenario
from shelflife.lab.wire import contract_bytes_in
from shelflife.testing import serving

__all__ = ["MOST_ATTEMPTS", "LabError", "play", "strategy_of"]

MOST_ATTEMPTS = 5

_TIMEOUT_S = 30


class LabError(Exception):
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
    record(_started(scenario, arm, planner, seed, consume, level, model, digest))
    clock = _Clock()
    token = secrets.token_urlsafe()
    api = APIS[scenario.api]
    app = clock.timing_app(api.app(api.provider(level=level, admin_token=token)))
    with (
        clock.running("whole"),
        serving(app) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=_TIMEOUT_S) as http,
    ):
        run = _Run(api, address, http, strategy, planner, consume, record, clock, recorded)
        for episode in scenario.episodes(seed):
            run.play_episode(episode)
            for drift in scenario.drift_after(episode.index):
                record(pushed(drift, http, token))
            on_episode()
    record(clock.as_record())


class _Run:
    """One agent, its memory and its server."""

    def __init__(
        self,
        api: Api,
        origin: str,
        http: httpx2.Client,
        strategy: Strategy,
        planner: Planner,
        consume: Consume,
        record: Callable[[Record], None],
        clock: "_Clock",
        recorded: Sequence[Attempted],
    ) -> None:
        self._api = api
        self._origin = origin
        self._http = http
        self._planner = planner
        self._consume = consume
        self._record = record
        self._clock = clock
        self._recorded = {(one.episode, one.attempt): one for one in recorded}
        self._memory = Memory(strategy=strategy, fetch=self._fetch)
        self._learned_in: dict[str, int] = {}
        self._episode = -1

    def play_episode(self, episode: Episode) -> None:
        """From the first request to success or giving up."""
        self._episode = episode.index
        with self._clock.running("memory"):
            entries = self._memory.recall(self._origin, self._api.operation, episode.input)
        before: list[prompting.Exchange] = []
        is_completed = False
        while not is_completed and len(before) < MOST_ATTEMPTS:
            messages = messages_for(self._api, episode, self._consume, entries, before)
            proposal = self._proposal(len(before) + 1, messages)
            request = request_in(proposal.text)
            shown: list[Shown] = []
            if self._consume is not Consume.APPLY:
                shown = [] if before else self._shown(entries)
            elif request is not None and all(exchange.status is None for exchange in before):
                request, shown = self._amended(request)
            attempted = Attempted(
                episode=episode.index,
                attempt=len(before) + 1,
                prompt=digest_of_messages(messages),
                text=proposal.text,
                served=proposal.served,
                prompt_tokens=proposal.usage.prompt,
                completion_tokens=proposal.usage.completion,
                token_source=proposal.usage.source,
                shown=shown,
                status=None,
            )
            if request is None:
                self._record(attempted)
                before.append(prompting.Exchange(proposal.text, None, ""))
                continue
            response = self._send(request, attempted)
            is_completed = response.is_success
            sent = msgspec.json.encode(request).decode()
            before.append(prompting.Exchange(sent, response.status_code, response.text))
        self._record(
            EpisodeEnded(
                episode=episode.index,
                in_class=episode.family.in_class,
                attempts=len(before),
                is_completed=is_completed,
            )
        )

    def _proposal(self, attempt: int, messages: list[Message]) -> Proposal:
        before = self._recorded.get((self._episode, attempt))
        if before is not None and before.prompt == digest_of_messages(messages):
            usage = Usage(before.prompt_tokens, before.completion_tokens, before.token_source)
            return Proposal(before.text, usage, before.served)
        with self._clock.running("planner"):
            proposal = self._planner.propose(messages)
        # half a surrogate pair, which a model may well utter, has no UTF-8
        text = proposal.text.encode(errors="replace").decode()
        return msgspec.structs.replace(proposal, text=text)

    def _amended(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[Shown]]:
        with self._clock.running("memory"):
            amended = self._memory.amend(self._origin, self._api.operation, request, Guard(allows_money=True))
        return amended.request, self._shown([applied.entry for applied in amended.applied])

    def _send(self, request: dict[str, Any], attempted: Attempted) -> httpx2.Response:
        method, path = self._api.operation.split(" ")
        content = msgspec.json.encode(request)
        with self._clock.running("http"):
            response = self._http.request(
                method, path, content=content, headers={"content-type": "application/json"}
            )
        self._record(
            msgspec.structs.replace(
                attempted,
                status=response.status_code,
                request_bytes=len(content),
                response_bytes=len(response.content),
                contract_bytes=contract_bytes_in(response.content),
            )
        )
        headers = {name.lower(): value for name, value in response.headers.items()}
        exchange = Exchange(
            self._origin, self._api.operation, request, response.status_code, headers, response.content
        )
        with self._clock.running("memory"):
            happened = self._memory.observe(exchange)
        for event in happened:
            self._take_down(event)
        return response

    def _take_down(self, event: events.Event) -> None:
        episode = self._episode
        match event:
            case events.Stored(entry):
                self._learned_in[entry.id] = episode
            case events.Evicted(entry, reason) if reason.is_invalidation:
                self._record(
                    Evicted(episode=episode, reason=reason.name.lower(), entry=self._as_shown(entry))
                )
            case events.Restamped():
                self._record(Restamped(episode=episode, count=event.count))
            case events.Alerted():
                self._record(Alerted(episode=episode, noticed_by=event.noticed_by))
            case _:
                pass

    def _shown(self, entries: Sequence[Entry]) -> list[Shown]:
        return [self._as_shown(entry) for entry in entries]

    def _as_shown(self, entry: Entry) -> Shown:
        return Shown(
            id=entry.id,
            type=entry.type,
            parameters=entry.parameters,
            tables=entry.tables,
            rows=entry.rows,
            rules=entry.rules,
            learned_in=self._learned_in.get(entry.id, -1),
        )

    def _fetch(self, url: str) -> Fetched | None:
        try:
            with self._clock.running("questions"):
                response = self._http.get(url)
        except httpx2.TransportError:
            return None
        self._record(
            Asked(
                episode=self._episode,
                url=url,
                status=response.status_code,
                question_bytes=len(url.encode()) + len(response.content),
            )
        )
        return Fetched(response.status_code, response.content)


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


class _Clock:
    """Where the time of a run goes."""

    def __init__(self) -> None:
        self._spent_s: Counter[str] = Counter()

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Count the time of a block."""
        begun_at = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s[what] += time.perf_counter() - begun_at  # type: ignore[assignment]

    def timing_app(self, app: Any) -> Any:
        """The app, with the time that it takes counted."""

        async def timed(scope: Any, receive: Any, send: Any) -> None:
            # the time of a question is counted where it is asked
            is_question = scope.get("path", "").startswith("/contract/")
            with nullcontext() if is_question else self.running("server"):
                await app(scope, receive, send)

        return timed

    def as_record(self) -> RunEnded:
        """What was counted; the time of HTTP is without that of the server, that of the memory without its questions."""
        spent = self._spent_s
        return RunEnded(
            planner_s=spent["planner"],
            memory_s=max(0.0, spent["memory"] - spent["questions"]),
            server_s=spent["server"],
            http_s=max(0.0, spent["http"] - spent["server"]),
            questions_s=spent["questions"],
            whole_s=spent["whole"],
        )
