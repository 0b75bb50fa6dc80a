"""Following the change feed of a server, so that a memory is up to date before it is asked."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from shelflife.client.asking import Question, Reply
from shelflife.client.events import Event
from shelflife.client.memory import Memory

__all__ = ["Follower"]

_log = logging.getLogger("shelflife.memory")

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_LARGEST_LINE = 1024 * 1024


class Follower:
    """Listens to the feed of one server in a thread of its own, and lets a memory hear it.

    Lost connections are taken up again from what the memory knows, so that nothing is missed and nothing is taken in twice.

        with Follower(memory, httpx2.Client(), "https://api.example:443"):
            ...
    """

    def __init__(
        self,
        memory: Memory,
        client: Any,
        origin: str,
        *,
        on_heard: Callable[[list[Event]], None] = lambda events: None,
    ) -> None:
        """`client` is a blocking one of httpx2 or httpx, without a memory's transport, and is not closed here."""
        self._memory = memory
        self._client = client
        self._origin = origin
        self._on_heard = on_heard
        self._is_over = threading.Event()
        self._response: Any = None
        self._heard = threading.Condition()
        self._epoch: str | None = None
        self._thread = threading.Thread(target=self._follow, name="shelflife-follower", daemon=True)

    def __enter__(self) -> "Follower":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        with suppress(Exception):  # there may be no connection at the moment
            stream = self._response.extensions["network_stream"]
            # wakes the thread, as closing would not
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(_LONGEST_PAUSE_S)

    def wait_for(self, epoch: str, timeout_s: float) -> bool:
        """Wait until this state has been heard of; False when it was not in time."""
        with self._heard:
            return self._heard.wait_for(lambda: self._epoch == epoch, timeout_s)

    def _follow(self) -> None:
        pause_s = 0.0
        while not self._is_over.wait(pause_s):
            pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            try:
                self._listen()
                pause_s = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - whatever ends a connection, it is taken up again
                if not self._is_over.is_set():
                    _log.info("the change feed of %s was lost: %s", self._origin, error)

    def _listen(self) -> None:
        headers = {"accept": "text/event-stream"}
        known = self._memory.epoch(self._origin)
        if known is not None:
            headers["last-event-id"] = known
            self._note(known)
        url = f"{self._origin}/contract/changes"
        with self._client.stream("GET", url, headers=headers) as response:
            response.raise_for_status()
            self._response = response
            for told in _events(response.iter_lines()):
                self._take_in(told)
                if self._is_over.is_set():
                    return

    def _take_in(self, told: Mapping[str, str]) -> None:
        since = json.loads(told["data"]).get("since") if told.get("event") == "moved" else None
        self._on_heard(self._memory.hear(self._origin, told["data"].encode(), since, self._ask))
        self._memory.epoch(self._origin)  # so that the next event can go on from it
        self._note(told.get("id", ""))

    def _note(self, epoch: str) -> None:
        with self._heard:
            self._epoch = epoch
            self._heard.notify_all()

    def _ask(self, question: Question) -> Reply | None:
        try:
            response = self._client.request(question.method, question.url, content=question.body)
            return Reply(response.status_code, response.content)
        except Exception:  # noqa: BLE001 - whatever the client raises, the server could not tell
            return None


def _events(lines: Iterable[str]) -> Iterator[Mapping[str, str]]:
    """The fields of each event in a stream of lines; comments and what is not understood are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if len(line) > _LARGEST_LINE:
            raise ValueError("a line of the feed is too long")
        if not line:
            if "data" in fields:
                yield fields
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
