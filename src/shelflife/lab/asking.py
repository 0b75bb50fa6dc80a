"""What a memory asks its server of its own accord, and what it is told by the change feed: each with its bytes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from shelflife.client import Question, Reply
from shelflife.lab.clock import Clock
from shelflife.lab.wire import head_bytes

__all__ = ["Asking"]


class Asking:
    """The questions of one memory. Also a client for a follower, whose time is nobody's wait and is not counted."""

    def __init__(
        self, http: httpx2.Client, clock: Clock, note: Callable[[str, bytes | None, int, int, int], None]
    ) -> None:
        """`note` is told the URL, what was sent, the status and the bytes: those of the URL and of the bodies, and those of whole messages."""
        self._http = http
        self._clock = clock
        self._note = note
        self._feed: httpx2.Response | None = None
        self._heard_bytes = 0
        self._is_head_counted = True

    def ask(self, question: Question) -> Reply | None:
        """Answer a question; None when that fails."""
        try:
            with self._clock.running("questions"):
                response = self.request(question.method, question.url, question.body, question.headers)
        except httpx2.TransportError:
            return None
        return Reply(response.status_code, response.content)

    def request(
        self, method: str, url: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Ask, and count."""
        response = self._http.request(method, url, content=content, headers=headers)
        bodies = len(content or b"") + len(response.content)
        whole = head_bytes(response) + bodies
        self._note(url, content, response.status_code, len(url.encode()) + bodies, whole)
        return response

    @contextmanager
    def stream(self, method: str, url: str, **options: Any) -> Iterator[httpx2.Response]:
        """Listen to a feed, or ask beside it. What a feed tells is counted when `count_heard` is called, and at its end."""
        with self._http.stream(method, url, **options) as response:
            is_feed = response.headers.get("content-type") == "text/event-stream"
            if is_feed:
                self._feed, self._heard_bytes, self._is_head_counted = response, 0, False
            try:
                yield response
            finally:
                if is_feed:
                    self.count_heard()
                else:
                    content = options.get("content")
                    bodies = len(content or b"") + response.num_bytes_downloaded
                    whole = head_bytes(response) + bodies
                    self._note(url, content, response.status_code, len(url.encode()) + bodies, whole)

    def count_heard(self) -> None:
        """Count what the feed has told since the last time."""
        feed = self._feed
        if feed is None:
            return
        heard = feed.num_bytes_downloaded - self._heard_bytes
        if heard == 0 and self._is_head_counted:
            return
        url = str(feed.url)
        url_bytes, head = (0, 0) if self._is_head_counted else (len(url.encode()), head_bytes(feed))
        self._note(url, None, feed.status_code, url_bytes + heard, head + heard)
        self._heard_bytes, self._is_head_counted = feed.num_bytes_downloaded, True
