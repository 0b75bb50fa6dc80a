"""One agent of a run: its memory, and how it goes about an episode."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import httpx2
import msgspec

from shelflife.client import Entry, Memory, Store, events
from shelflife.client.guard import Guard
from shelflife.client.memory import Exchange
from shelflife.client.preconditions import carried_by, precondition_for
from shelflife.client.strategies import Strategy
from shelflife.client.trust import Trust
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.contract.merging import merged
from shelflife.contract.preconditions import PRECONDITION_HEADER, has_gone_stale
from shelflife.integrations.following import Follower
from shelflife.lab import prompting
from shelflife.lab.apis import Api
from shelflife.lab.asking import Asking
from shelflife.lab.clock import Clock
from shelflife.lab.planners import Message, Planner, Proposal, Usage
from shelflife.lab.prompting import digest_of_messages, messages_for, request_in
from shelflife.lab.records import (
    Alerted,
    Asked,
    Attempted,
    Distrusted,
    EpisodeEnded,
    Evicted,
    Record,
    Restamped,
    Shown,
)
from shelflife.lab.scenarios import Episode
from shelflife.lab.spec import Conduct, Consume
from shelflife.lab.wire import contract_bytes_in, contract_header_bytes, other_header_bytes

__all__ = ["Agent", "Surroundings"]

_MOST_ATTEMPTS = 5
_MOST_MENDED = 2


class Surroundings(NamedTuple):
    """What all agents of a run have in common."""

    api: Api
    origin: str
    http: httpx2.Client
    strategy: Strategy
    planner: Planner
    consume: Consume
    conduct: Conduct
    record: Callable[[Record], None]
    clock: Clock
    recorded: Mapping[tuple[int, int, int], Attempted]
    """What the planner has answered before, by agent, episode and attempt."""

    learned_in: dict[str, int]
    """The episode in which one of them has learned an entry, by its id."""

    guard: Guard
    """What their remembered fixes may do to requests; what it refuses is not shown either."""

    trust: Trust | None
    now: Callable[[], float]
    """The clock of their memories."""

    wants: Mapping[str, Any]
    """What a server that injects slips into its fixes."""


class _Held(NamedTuple):
    """The remembered fixes that a request may carry."""

    entries: Sequence[Entry]
    epoch: str | None
    """The state at which they were known to be right; None when nothing is asked of the server."""

    before: Mapping[str, Any]
    """The request without them."""


class _Sent(NamedTuple):
    """A request that went out, and its response."""

    request: dict[str, Any]
    headers: dict[str, str]
    carried: list[Entry]
    response: httpx2.Response
    request_bytes: int
    taught: dict[str, Any]
    """What the fixes in the response are for: where it was refused for its remembered values, the request without them."""

    has_gone_stale: bool

    @property
    def header_bytes(self) -> int:
        """Of the contract's headers of the response."""
        return contract_header_bytes(self.response.headers)


class Agent:
    """One agent; nothing that its planner or its server does makes it fail but the server's being gone."""

    def __init__(self, number: int, surroundings: Surroundings, store: Store | None = None) -> None:
        """A `store` is shared with others; without one the memory is in this process alone."""
        self._number = number
        self._around = surroundings
        self._asking = Asking(surroundings.http, surroundings.clock, self._note_question)
        self._memory = Memory(
            store,
            surroundings.strategy,
            fetch=self._asking.fetch,
            trust=surroundings.trust,
            most_evictions=surroundings.conduct.bound,
            clock=surroundings.now,
        )
        self._episode = 0
        self._follower: Follower | None = None

    def following(self) -> AbstractContextManager[object]:
        """For as long as a run lasts: the feed is heard, if that is its conduct."""
        around = self._around
        if around.conduct.fresh != "feed" or not around.strategy.is_remembering:
            return nullcontext()
        self._follower = Follower(self._memory, self._asking, around.origin, on_heard=self._hear)
        return self._follower

    def has_heard(self, epoch: str, timeout_s: float) -> bool:
        """Wait until the feed has told of a state; True at once without a feed."""
        return self._follower is None or self._follower.wait_for(epoch, timeout_s)

    def play_episode(self, episode: Episode) -> None:
        """From the first request to success or giving up."""
        around = self._around
        self._episode = episode.index
        if around.conduct.fresh == "check":
            self._refresh()
        held = self._recalled(episode.input)
        shown_entries = held.entries
        before: list[prompting.Exchange] = []
        is_completed = False
        while not is_completed and len(before) < _MOST_ATTEMPTS:
            messages = messages_for(around.api, episode, around.consume, shown_entries, before)
            proposal = self._proposal(len(before) + 1, messages)
            request = request_in(proposal.text)
            shown: list[Shown] = []
            if around.consume is not Consume.APPLY:
                shown = [] if before else self._shown(shown_entries)
            elif request is not None and all(exchange.status is None for exchange in before):
                request, held = self._amended(request)
                shown = self._shown(held.entries)
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
                agent=self._number,
            )
            if request is None:
                around.record(attempted)
                before.append(prompting.Exchange(proposal.text, None, ""))
                continue
            sent, held = self._carry_out(request, held, attempted)
            is_completed = sent.response.is_success
            reply = msgspec.json.encode(sent.request).decode()
            before.append(prompting.Exchange(reply, sent.response.status_code, sent.response.text))
        around.record(
            EpisodeEnded(
                episode=episode.index,
                in_class=episode.family.in_class,
                attempts=len(before),
                is_completed=is_completed,
                agent=self._number,
            )
        )
        self._episode += 1  # whatever is heard from now on is heard before the next

    def _refresh(self) -> None:
        with self._around.clock.running("memory"):
            happened = self._memory.refresh(self._around.origin, self._asking.fetch, self._asking.post)
        self._take_down(happened)

    def _check(self, request: Mapping[str, Any]) -> None:
        """Where evictions are bounded or states are signed: have the server asked about what is not certain of a request's fixes."""
        around, asking = self._around, self._asking
        if around.conduct.bound is None and not around.conduct.trust:
            return
        with around.clock.running("memory"):
            happened = self._memory.check(
                around.origin,
                around.api.operation,
                request,
                asking.fetch,
                asking.post,
                guard=around.guard,
            )
        self._take_down(happened)

    def _recalled(self, task_input: Mapping[str, Any]) -> _Held:
        around = self._around
        self._check(task_input)
        with around.clock.running("memory"):
            epoch = self._epoch_of_values()
            recalled = self._memory.recall(around.origin, around.api.operation, task_input)
        entries = [entry for entry in recalled if around.guard.refusal(entry) is None]
        return _Held(entries, epoch, task_input)

    def _amended(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], _Held]:
        around = self._around
        self._check(request)
        with around.clock.running("memory"):
            epoch = self._epoch_of_values()
            amended = self._memory.amend(around.origin, around.api.operation, request, around.guard)
        entries = [applied.entry for applied in amended.applied]
        return amended.request, _Held(entries, epoch, request)

    def _epoch_of_values(self) -> str | None:
        """Asked for before the memory is looked into: what it gives then is as new as this, or newer."""
        return self._memory.epoch(self._around.origin) if self._around.conduct.precondition else None

    def _proposal(self, attempt: int, messages: list[Message]) -> Proposal:
        before = self._around.recorded.get((self._number, self._episode, attempt))
        if before is not None and before.prompt == digest_of_messages(messages):
            usage = Usage(before.prompt_tokens, before.completion_tokens, before.token_source)
            return Proposal(before.text, usage, before.served)
        with self._around.clock.running("planner"):
            proposal = self._around.planner.propose(messages)
        # half a surrogate pair, which a model may well utter, has no UTF-8
        text = proposal.text.encode(errors="replace").decode()
        return msgspec.structs.replace(proposal, text=text)

    def _carry_out(self, request: dict[str, Any], held: _Held, attempted: Attempted) -> tuple[_Sent, _Held]:
        """Send a request; while the server refuses it for stale values, learn, mend it and send it again, in the end without any."""
        sent = [self._sent(request, held)]
        while sent[-1].has_gone_stale and len(sent) <= _MOST_MENDED:
            self._observe(sent[-1])
            request, held = sent[-1].taught, _Held((), None, sent[-1].taught)
            if len(sent) < _MOST_MENDED:
                request, held = self._amended(request)
            sent.append(self._sent(request, held, is_first=False))
        last = sent[-1]
        self._around.record(
            msgspec.structs.replace(
                attempted,
                status=last.response.status_code,
                carried=[entry.id for entry in last.carried],
                mended=len(sent) - 1,
                injected=[
                    name for name, value in self._around.wants.items() if last.request.get(name) == value
                ],
                mended_with=self._shown(held.entries) if len(sent) > 1 else [],
                request_bytes=sum(one.request_bytes for one in sent),
                contract_request_bytes=sum(contract_header_bytes(one.headers) for one in sent),
                other_header_bytes=sum(other_header_bytes(one.response) for one in sent),
                response_bytes=sum(len(one.response.content) + one.header_bytes for one in sent),
                contract_bytes=sum(
                    contract_bytes_in(one.response.content) + one.header_bytes for one in sent
                ),
            )
        )
        self._observe(last)
        return last, held

    def _sent(self, request: dict[str, Any], held: _Held, *, is_first: bool = True) -> _Sent:
        around = self._around
        method, path = around.api.operation.split(" ")
        content = msgspec.json.encode(request)
        headers = {"content-type": "application/json"}
        epoch = self._memory.epoch(around.origin) if around.conduct.form == "compact" else None
        if epoch is not None:
            headers[EPOCH_HEADER] = epoch
        carried = carried_by(request, held.entries)
        without = request
        if carried and held.epoch is not None:
            brief = is_first and around.conduct.form == "compact"
            precondition = precondition_for(held.epoch, carried, held.before, brief=brief)
            headers[PRECONDITION_HEADER] = precondition.header
            without = merged(request, precondition.was)
        with around.clock.running("http"):
            response = around.http.request(method, path, content=content, headers=headers)
        is_stale = PRECONDITION_HEADER in headers and has_gone_stale(response.status_code, response.headers)
        taught = without if is_stale else request
        return _Sent(request, headers, carried, response, len(content), taught, is_stale)

    def _observe(self, sent: _Sent) -> None:
        response = sent.response
        exchange = Exchange(
            self._around.origin,
            self._around.api.operation,
            sent.taught,
            response.status_code,
            {name.lower(): value for name, value in response.headers.items()},
            response.content,
            sent.headers.get(EPOCH_HEADER),
            conditional=PRECONDITION_HEADER in sent.headers,
        )
        with self._around.clock.running("memory"):
            happened = self._memory.observe(exchange)
        self._take_down(happened)

    def _hear(self, happened: list[events.Event]) -> None:
        self._asking.count_heard()
        self._take_down(happened)

    def _take_down(self, happened: Iterable[events.Event]) -> None:
        for event in happened:
            if isinstance(event, events.Stored):
                self._around.learned_in[event.entry.id] = self._episode
            elif (record := self._as_record(event)) is not None:
                self._around.record(record)

    def _as_record(self, event: events.Event) -> Record | None:
        episode, agent = self._episode, self._number
        match event:
            case events.Evicted(entry, reason) if reason.is_invalidation:
                left = self._as_shown(entry)
                return Evicted(episode=episode, reason=reason.name.lower(), entry=left, agent=agent)
            case events.Restamped():
                return Restamped(episode=episode, count=event.count, agent=agent)
            case events.Alerted():
                return Alerted(episode=episode, noticed_by=event.noticed_by, agent=agent)
            case events.Distrusted():
                return Distrusted(episode=episode, why=event.why, agent=agent)
            case _:
                return None

    def _shown(self, entries: Iterable[Entry]) -> list[Shown]:
        return [self._as_shown(entry) for entry in entries]

    def _as_shown(self, entry: Entry) -> Shown:
        return Shown(
            id=entry.id,
            type=entry.type,
            parameters=entry.parameters,
            tables=entry.tables,
            rows=entry.rows,
            rules=entry.rules,
            learned_in=self._around.learned_in.get(entry.id, -1),
        )

    def _note_question(self, url: str, status: int, question_bytes: int, whole_bytes: int) -> None:
        asked = Asked(
            episode=self._episode,
            url=url,
            status=status,
            question_bytes=question_bytes,
            whole_bytes=whole_bytes,
            agent=self._number,
        )
        self._around.record(asked)
