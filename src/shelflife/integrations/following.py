"""Following the change feed of a server, so that a memory is up to date before it is asked.

All of it is written once, for async clients. The calls of a blocking one are awaited too, and are done at once.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from shelflife.client.asking import LARGEST_ANSWER, Question, Reply
from shelflife.client.entries import Root, origin_of
from shelflife.client.event_stream import EventStream
from shelflife.client.events import Event, LogLost
from shelflife.client.memory import Memory
from shelflife.client.pauses import Pauses, apart
from shelflife.contract.positions import AT_HEADER, Named, Position
from shelflife.extras import needing
from shelflife.integrations.reaching import Async, Blocking
from shelflife.integrations.watching import at_once

__all__ = ["AsyncFollower", "CatchingUp", "Follower", "Following", "Offline"]

_log = logging.getLogger("shelflife.memory")

_QUIET_S = 40.0
"""A server sends something at least every 15 seconds. One that is silent for so long is gone."""

_PAUSES = Pauses(0.1, 30.0)
_LONGEST_WAIT_S = 10.0
"""For a connection, and for all that is asked about one event. When that takes longer, the feed is begun anew, which asks too."""

_LONGEST_END_S = 2.0
"""Only a connection that is not there yet keeps a thread from ending at once. It is left behind then, and does nothing any more."""

_MOST_SEEN = 256

Outcome = TypeVar("Outcome")


class Following(NamedTuple):
    """All that the server tells is heard, and the memory is up to date with it."""


class CatchingUp(NamedTuple):
    """It is connected, or about to be, and has not been told yet what it missed."""


class Offline(NamedTuple):
    """What the server tells is not heard."""

    since: float
    """In seconds of Unix time: for how long the memory has not been up to date."""

    why: str


class _Way(NamedTuple):
    """The way that the memory has come in one log, by moves alone: its mark is another one as soon as it takes up anything else."""

    mark: str | None = None
    """Of the memory, all the way; None before the first step."""

    begun: int = 0
    """The number of the position where it begins."""

    seen: tuple[Position, ...] = ()
    """The last positions on it where the memory has been. Others lie between them: one event may lead over several."""

    def on_to(self, to: Named, start: Named) -> "_Way":
        """Further on; or another way, where the memory has left this one. That begins at the start, if moves have led on from there."""
        if to.position is None:
            return self
        way = self
        if to.mark != self.mark:
            first = start.position if start.mark == to.mark and start.position is not None else to.position
            way = _Way(to.mark, first.number, (first,))
        return (
            way if way.seen[-1] == to.position else way._replace(seen=(*way.seen, to.position)[-_MOST_SEEN:])
        )

    def leads_over(self, position: Position) -> bool:
        """Whether a position lies on it where the memory was not seen, as far as a number can say that."""
        numbers = [one.number for one in self.seen]
        return (
            bool(numbers) and self.begun <= position.number < numbers[-1] and position.number not in numbers
        )


class _Follower:
    """What both kinds of followers do."""

    _reach: Blocking | Async
    _not_of_its_client: str

    def __init__(
        self,
        memory: Memory,
        root: Root,
        *,
        headers: Mapping[str, str] | None = None,
        client: Any = None,
        quiet_s: float = _QUIET_S,
        on_heard: Callable[[list[Event]], None] = lambda events: None,
    ) -> None:
        """Follow the contract at a root: the address of a server, with a path where the contract does not live at its root.

        - `headers` go with every request, such as the credentials that the server asks for.
        - `client` is one of httpx2 or httpx, without a memory's transport. It is not closed here. Without it there is one of its own.
        - `quiet_s`: a server that has sent nothing for so long is taken for gone. It is not waited longer for an answer either.
        - `on_heard` is told what became of each event; what it raises is logged and goes no further.
        """
        if hasattr(client, self._not_of_its_client):
            raise TypeError("a Follower takes a blocking client, and an AsyncFollower an async one")
        self.memory = memory
        self.root = origin_of(root) + urlsplit(root).path.rstrip("/")
        self.state: Following | CatchingUp | Offline = CatchingUp()
        """Whether everything is heard; and if not, since when and why."""
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._client, self._quiet_s, self._on_heard = client, quiet_s, on_heard
        self._pause_s = 0.0
        self._lost_at: float | None = None
        self._way = _Way()
        """Never changed, only replaced: others look at it."""

    async def _follow(self, client: Any) -> None:
        try:
            while not self._reach.is_over:
                try:
                    await self._listen(client)
                except Exception as error:  # noqa: BLE001 - whatever ends a connection, it is taken up again
                    if not self._reach.is_over:
                        self._lose(str(error) or type(error).__name__)
                await self._reach.pause(apart(self._pause_s))
        finally:
            self._lose("it is not followed any more")

    def _lose(self, why: str) -> None:
        if self._lost_at is None:
            self._lost_at = time.time()
            _log.info("the change feed of %s is not heard: %s", self.root, why)
        self.state = Offline(self._lost_at, why)

    async def _listen(self, client: Any) -> None:
        """Hear a feed, for as long as it goes on from where the memory is.

        The request is a question, and the first event its answer. So whatever was in doubt is settled by connecting.
        """
        self._pause_s = _PAUSES.after(self._pause_s)
        memory, root = self.memory, self.root
        at, before = await self._looked(
            lambda: (memory.contract_at(root, asking=True), memory.position(root))
        )
        start = _named_in(at)
        asked = {"accept": "text/event-stream", AT_HEADER: at}
        question = Question(f"{self.root}/contract/changes", headers=asked)
        async with self._opened(client, question, self._quiet_s) as feed:
            self._check(feed)
            self.state, stream, is_alive = CatchingUp(), EventStream(), False
            async for chunk in self._reach.chunks(feed):
                heard, way = [], self._way
                for told in stream.told(chunk):
                    heard.append(await self._taken_in(client, told, at))
                    now = await self._looked(lambda: memory.contract_at(root))
                    way = way.on_to(_named_in(now), start)
                if not heard:
                    continue
                position = await self._looked(lambda: memory.position(root))
                if position is None:
                    raise ConnectionError("the memory could not go on from what it heard")
                # Every feed begins with a sign of life. To end right after it, again and again, is no progress.
                is_split = any(isinstance(one, LogLost) and one.several for events in heard for one in events)
                if is_alive or (position != before and not is_split):
                    self._pause_s = _PAUSES.first_s
                has_begun_anew = way.mark != start.mark
                self._way = way
                self.state = CatchingUp() if has_begun_anew else Following()
                self._lost_at, is_alive = None, True
                self._reach.tell()
                if has_begun_anew:
                    return  # the server would go on from what the memory knew before
        raise ConnectionError("the server has ended the feed")

    async def _looked(self, look: Callable[[], Outcome]) -> Outcome:
        """What a look into the memory gives. An event loop is not held up by one on another machine."""
        looked: Outcome = await self._reach.called(look) if self.memory.is_remote else look()
        return looked

    def _opened(self, client: Any, question: Question, read_s: float) -> AbstractAsyncContextManager[Any]:
        of_a_body = {} if question.body is None else {"content-type": "application/json"}
        headers = {**self._headers, **question.headers, **of_a_body, "accept-encoding": "identity"}
        timeout = (_LONGEST_WAIT_S, read_s, _LONGEST_WAIT_S, _LONGEST_WAIT_S)
        options = {"content": question.body, "timeout": timeout, "follow_redirects": False}
        return self._reach.opened(client, question.method, question.url, headers=headers, **options)

    def _check(self, feed: Any) -> None:
        """`ConnectionError` unless this is a feed."""
        if (retry_after := feed.headers.get("retry-after", "")).isdecimal():
            self._pause_s = min(max(self._pause_s, float(retry_after)), _PAUSES.longest_s)
        media_type = feed.headers.get("content-type", "").partition(";")[0].strip().lower()
        if feed.status_code != 200 or media_type != "text/event-stream" or _is_encoded(feed):
            raise ConnectionError(f"the server answers with status {feed.status_code} and no feed")

    def _has_heard(self, position: str) -> bool:
        """Whether the memory has heard all up to a position.

        Two race here: whoever waits, with a position that a server has just given out, and the feed of another log, if the server has
        begun anew and that is not known here yet. By a number alone the position would seem to have been passed in the old log. So
        numbers count only while the feed is heard, and the state is looked at first: the way is written before it.
        """
        is_following, way = isinstance(self.state, Following), self._way
        wanted = Position.from_text(position)
        return wanted is not None and (wanted in way.seen or (is_following and way.leads_over(wanted)))

    async def _taken_in(self, client: Any, told: bytes, at: str) -> list[Event]:
        """What becomes of something that was told. A comment tells nothing."""
        if not told:
            return []
        until = time.monotonic() + min(self._quiet_s, _LONGEST_WAIT_S)
        events = await self.memory.hear_async(
            self.root, told, lambda question: self._answer(client, question, until), at=at
        )
        try:
            self._on_heard(events)
        except Exception:  # noqa: BLE001 - whatever it raises, the memory has heard
            _log.exception("whoever is told what a follower has heard has failed")
        return events

    async def _answer(self, client: Any, question: Question, until: float) -> Reply | None:
        left_s = until - time.monotonic()
        if left_s <= 0:
            return None
        with suppress(Exception):  # whatever the client raises, the server could not tell
            async with self._reach.within(left_s), self._opened(client, question, left_s) as response:
                body = bytearray()
                async for chunk in self._reach.chunks(response):
                    body += chunk
                    if len(body) > LARGEST_ANSWER or _is_encoded(response):
                        return None
                return Reply(response.status_code, bytes(body))
        return None


class Follower(_Follower):
    """Listens to the feed of one server in a thread of its own, and lets a memory hear it.

    Lost connections are taken up again from what the memory knows, so that nothing is missed and nothing is taken in twice.

        with Follower(memory, "https://api.example"):
            ...
    """

    _reach: Blocking
    _not_of_its_client = "aclose"

    def __enter__(self) -> "Follower":
        self._reach = Blocking()
        own = None if self._client is not None else _client_of_its_own("Client")
        self._thread = threading.Thread(target=self._run, args=[own], name="shelflife-follower", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._reach.end()
        self._thread.join(_LONGEST_END_S)

    def wait_for(self, position: str, timeout_s: float) -> bool:
        """Wait until the memory has heard all up to this position; False when it has not in time.

        One event may lead over several positions, and names only the last. One in between counts as heard by its number, while the
        feed is: that it is of the server's present log is taken on the caller's word. A position of another log is waited for.
        """
        return self._reach.wait_until(lambda: self._has_heard(position), timeout_s)

    def _run(self, own: Any) -> None:
        with own or nullcontext():
            at_once(self._follow(own or self._client))


class AsyncFollower(_Follower):
    """The same in a task of the running event loop: `async with AsyncFollower(memory, "https://api.example"): ...`."""

    _reach: Async
    _not_of_its_client = "close"

    async def __aenter__(self) -> "AsyncFollower":
        self._reach = Async()
        own = None if self._client is not None else _client_of_its_own("AsyncClient")
        self._task = asyncio.create_task(self._run(own))
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait_for(self, position: str, timeout_s: float) -> bool:
        """Wait until the memory has heard all up to this position, as a `Follower` does; False when it has not in time."""
        return await self._reach.wait_until(lambda: self._has_heard(position), timeout_s)

    async def _run(self, own: Any) -> None:
        async with own or nullcontext():
            await self._follow(own or self._client)


def _client_of_its_own(kind: str) -> Any:
    """Made by whoever begins to follow, who is to be told when the library is missing. No connection is used twice: only of a new one is it
    known how to end it before anything comes over it."""
    with needing("httpx2"):
        import httpx2
    return getattr(httpx2, kind)(limits=httpx2.Limits(max_keepalive_connections=0))


def _is_encoded(response: Any) -> bool:
    """Whether a body is not as it was asked for: a few bytes of it may be any number."""
    return bool(response.headers.get("content-encoding", "identity") != "identity")


def _named_in(at: str) -> Named:
    return Named.from_header(at) or Named()
