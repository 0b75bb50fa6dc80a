"""One agent of a run: its memory, and how it goes about an episode."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import httpx2
import msgspec

from shelflife.client import (
    Call,
    Entry,
    Guard,
    Held,
    Memory,
    Question,
    Reply,
    Send,
    Store,
    Strategy,
    events,
    exchange,
)
from shelflife.client.asking import Fields
from shelflife.client.events import Reason
from shelflife.client.strategies import table_tag
from shelflife.client.trust import Trust
from shelflife.contract import AskFixes
from shelflife.integrations.following import Follower
from shelflife.lab import prompting
from shelflife.lab.apis import Api
from shelflife.lab.asking import Asking
from shelflife.lab.clock import Clock
from shelflife.lab.matching import as_matched
from shelflife.lab.planners import Message, Planner, Proposal, Usage
from shelflife.lab.prompting import digest_of_messages, messages_for, request_in
from shelflife.lab.records import (
    Alerted,
    Asked,
    Attempted,
    Distrusted,
    EpisodeEnded,
    Evicted,
    Foreseen,
    Record,
    Restamped,
    Shown,
)
from shelflife.lab.scenarios import Episode
from shelflife.lab.spec import Conduct, Consume
from shelflife.lab.truth import Learned
from shelflife.lab.ways_to_ask import Weighed, foresight_of
from shelflife.lab.wire import contract_bytes_in, contract_header_bytes, other_header_bytes
from shelflife.lab.wordings import Wording

__all__ = ["Agent", "Surroundings"]

_MOST_ATTEMPTS = 5


class Surroundings(NamedTuple):
    """What all agents of a run have in common."""

    api: Api
    origin: str
    http: httpx2.Client
    strategy: Strategy
    is_remembering: bool
    planner: Planner
    consume: Consume
    conduct: Conduct
    wording: Wording
    record: Callable[[Record], None]
    clock: Clock
    recorded: Mapping[tuple[int, int, int], Attempted]
    """What the planner has answered before, by agent, episode and attempt."""

    learned: Learned

    guard: Guard
    """What their remembered fixes may do to requests; what it refuses is not shown either."""

    trust: Trust | None
    now: Callable[[], float]
    """The clock of their memories."""

    wants: Mapping[str, Any]
    """What a server that injects slips into its fixes."""


class _Sent(NamedTuple):
    """A request that went out, and its response."""

    send: Send
    response: httpx2.Response
    request_bytes: int

    @property
    def request_text(self) -> str:
        return msgspec.json.encode(self.send.request).decode()

    @property
    def shown_text(self) -> str:
        """What a planner is shown of the response: not where in its log the server is, which is drawn anew in each run."""
        body = self.response.content
        try:
            whole = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            whole = None
        if not isinstance(whole, dict) or "at" not in whole:
            return self.response.text
        return msgspec.json.encode({name: value for name, value in whole.items() if name != "at"}).decode()

    @property
    def header_bytes(self) -> int:
        """Of the contract's headers of the response."""
        return contract_header_bytes(self.response.headers)


class Agent:
    """One agent. It fails only when its server is gone, or its planner cannot answer."""

    def __init__(self, number: int, surroundings: Surroundings, store: Store | None = None) -> None:
        """A `store` is shared with others; without one the memory is in this process alone."""
        self._number = number
        self._around = surroundings
        self._asking = Asking(surroundings.http, surroundings.clock, self._note_question)
        self._memory = Memory(
            store,
            ask=self._asking.ask,
            trust=surroundings.trust,
            most_evictions=surroundings.conduct.bound,
            on_event=self._take_down,
            strategy=surroundings.strategy,
            foresight=self._foresight(),
            clock=surroundings.now,
        )
        self._episode = 0
        self._last_weighed = -1
        self._task: Fields = {}
        self._taught_by: Fields = {}
        """The request that the fixes in the last reply are for: one that was refused, or that the memory has asked about."""
        self._follower: Follower | None = None

    def _foresight(self) -> Weighed | None:
        foresight = foresight_of(self._around.conduct)
        return None if foresight is None else Weighed(foresight, self._note_weighed)

    def _note_weighed(self, chance: float, asked: bool, entries: Sequence[Entry]) -> None:
        if self._last_weighed == self._episode:  # a second look at the same
            return
        self._last_weighed = self._episode
        stale = len(self._around.learned.fitting(entries, self._task)) < len(entries)
        self._around.record(
            Foreseen(episode=self._episode, chance=chance, asked=asked, stale=stale, agent=self._number)
        )

    def following(self) -> AbstractContextManager[object]:
        """For as long as a run lasts: the feed is heard, if that is its conduct."""
        around = self._around
        if around.conduct.fresh != "feed" or not around.is_remembering:
            return nullcontext()
        self._follower = Follower(
            self._memory,
            around.origin,
            client=self._asking,
            on_heard=lambda _: self._asking.count_heard(),
        )
        return self._follower

    def has_heard(self, position: str, timeout_s: float) -> bool:
        """Wait until the feed has told of a position; True at once without a feed."""
        return self._follower is None or self._follower.wait_for(position, timeout_s)

    def play_episode(self, episode: Episode) -> None:
        """From the first request to success or giving up."""
        around = self._around
        self._episode, self._task = episode.index, episode.input
        if around.conduct.fresh == "check":
            with around.clock.running("memory"):
                self._memory.refresh(around.origin)
        held = self._recalled(episode.input)
        shown_entries = held.entries
        before: list[prompting.Turn] = []
        is_completed = False
        while not is_completed and len(before) < _MOST_ATTEMPTS:
            is_first_sent = all(exchange.status is None for exchange in before)
            messages = messages_for(
                around.api, episode, around.consume, shown_entries, before, around.wording
            )
            proposal = self._proposal(len(before) + 1, messages)
            request = request_in(proposal.text)
            attempted = Attempted(
                episode=episode.index,
                attempt=len(before) + 1,
                prompt=digest_of_messages(messages),
                text=proposal.text,
                served=proposal.served,
                prompt_tokens=proposal.usage.prompt,
                completion_tokens=proposal.usage.completion,
                token_source=proposal.usage.source,
                shown=[] if before or around.consume is Consume.APPLY else self._shown(shown_entries),
                status=None,
                agent=self._number,
                task="" if before else messages[1].content,
            )
            if request is None:
                around.record(attempted)
                before.append(prompting.Turn(proposal.text, None, ""))
                continue
            is_amending = around.consume is Consume.APPLY and is_first_sent
            sent = self._carry_out(request, None if is_amending else held, attempted)
            held = sent.send.held
            is_completed = sent.response.is_success
            shown = prompting.as_shown(sent.shown_text, around.conduct.reads)
            before.append(prompting.Turn(sent.request_text, sent.response.status_code, shown))
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

    def _recalled(self, task_input: Mapping[str, Any]) -> Held:
        """What the planner is shown: the remembered fixes for a task, as far as the guard allows."""
        around, root, operation = self._around, self._around.origin, self._around.api.operation
        with around.clock.running("memory"):
            self._memory.revalidate(root, operation, task_input, guard=around.guard)
            # before it is looked into: what it gives then is as new as this, or newer
            position = self._memory.position(root) if around.conduct.precondition else None
            recalled = self._memory.recall(root, operation, task_input)
        entries = [entry for entry in recalled if around.guard.refusal(entry) is None]
        return Held(entries, position, task_input)

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

    def _carry_out(self, request: dict[str, Any], held: Held | None, attempted: Attempted) -> _Sent:
        """Make a request through the memory, and record what came of it. With nothing held it is amended."""
        around = self._around
        conduct = around.conduct
        call = Call(
            around.origin,
            around.api.operation,
            request,
            around.guard,
            conditional=conduct.precondition,
            compact=conduct.names_positions,
            held=held,
        )
        sent: list[_Sent] = []

        def answer(step: Send | Question) -> Reply | None:
            if isinstance(step, Question):
                return self._asking.ask(step)
            sent.append(self._sent(step))
            response = sent[-1].response
            body = as_matched(response.content, conduct.match, around.api.family_field, step.request)
            reply = Reply(response.status_code, body, response.headers)
            self._taught_by = step.fixed_by(reply)
            if not step.is_refused_as_stale(reply):  # on record before whatever it leads to
                self._record_attempt(attempted, sent, is_amended=held is None)
            return reply

        with around.clock.running("memory"):
            exchange(self._memory, call, answer)
        return sent[-1]

    def _sent(self, send: Send) -> _Sent:
        around = self._around
        method, path = around.api.operation.split(" ")
        content = msgspec.json.encode(send.request)
        headers = {"content-type": "application/json", **send.headers}
        with around.clock.running("http"):
            response = around.http.request(method, path, content=content, headers=headers)
        return _Sent(send, response, len(content))

    def _record_attempt(self, attempted: Attempted, sent: Sequence[_Sent], *, is_amended: bool) -> None:
        last, first = sent[-1], sent[0].send
        wants = self._around.wants.items()
        self._around.record(
            msgspec.structs.replace(
                attempted,
                status=last.response.status_code,
                request=last.request_text,
                answer=last.shown_text,
                shown=self._shown(first.carried) if is_amended else attempted.shown,
                used=[entry.id for entry in first.carried],
                fitting=self._around.learned.fitting(first.carried, first.held.before),
                carried=[entry.id for entry in last.send.carried],
                mended=len(sent) - 1,
                injected=[name for name, value in wants if last.send.request.get(name) == value],
                mended_with=self._shown(last.send.carried) if len(sent) > 1 else [],
                request_bytes=sum(one.request_bytes for one in sent),
                contract_request_bytes=sum(contract_header_bytes(one.send.headers) for one in sent),
                other_header_bytes=sum(other_header_bytes(one.response) for one in sent),
                response_bytes=sum(len(one.response.content) + one.header_bytes for one in sent),
                contract_bytes=sum(
                    contract_bytes_in(one.response.content) + one.header_bytes for one in sent
                ),
            )
        )

    def _take_down(self, event: events.Event) -> None:
        """What the memory does, as it happens."""
        if isinstance(event, events.Stored):
            self._around.learned.note(event.entry, self._taught_by, self._episode)
        elif (record := self._as_record(event)) is not None:
            self._around.record(record)

    def _as_record(self, event: events.Event) -> Record | None:
        episode, agent = self._episode, self._number
        match event:
            case events.Evicted(entry, reason) if reason.is_invalidation or reason is Reason.UNCONFIRMED:
                is_asked_about = reason is Reason.UNCONFIRMED
                return Evicted(
                    episode=episode,
                    reason=reason.name.lower(),
                    entry=self._as_shown(entry),
                    agent=agent,
                    is_given_again=is_asked_about and self._is_given(entry),
                )
            case events.Restamped(root, table):
                dependent = self._memory.store.tagged(root, table_tag(table))
                kept = self._around.learned.kept(dependent, table, episode)
                return Restamped(episode=episode, entries=kept, agent=agent)
            case events.Alerted():
                return Alerted(episode=episode, noticed_by=event.noticed_by, agent=agent)
            case events.Distrusted():
                return Distrusted(episode=episode, why=event.why, agent=agent)
            case _:
                return None

    def _is_given(self, entry: Entry) -> bool:
        """Whether the server gives the fix of an entry to the request that it was asked about last."""
        return bool(self._around.learned.fitting([entry], self._taught_by))

    def _shown(self, entries: Iterable[Entry]) -> list[Shown]:
        return [self._as_shown(entry) for entry in entries]

    def _as_shown(self, entry: Entry) -> Shown:
        return Shown(
            id=entry.id,
            type=entry.type,
            parameters=entry.parameters,
            tables=entry.grounds.tables,
            rows=entry.grounds.rows,
            rules=entry.grounds.rules,
            learned_in=self._around.learned.episode_of(entry),
        )

    def _note_question(
        self, url: str, sent: bytes | None, status: int, question_bytes: int, whole_bytes: int
    ) -> None:
        if sent is not None:  # all else is asked without a body
            self._taught_by = msgspec.json.decode(sent, type=AskFixes).request
        asked = Asked(
            episode=self._episode,
            url=url,
            status=status,
            question_bytes=question_bytes,
            whole_bytes=whole_bytes,
            agent=self._number,
        )
        self._around.record(asked)
