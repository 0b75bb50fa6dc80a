"""Reading from a server that may fall silent at any moment, so that it can be given up at any other: with a blocking client, or an async one.

The verbs of both kinds are awaited. Those of the blocking one are done at once.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

__all__ = ["Async", "Blocking"]

Outcome = TypeVar("Outcome")


class Blocking:
    """With a blocking client of httpx2 or httpx, in a thread. Another thread may end it."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._news = threading.Condition()
        self._open: tuple[socket.socket, ...] = ()
        """The connections in use. Never changed, only replaced: other threads look at them."""

    @property
    def is_over(self) -> bool:
        """Whether it was ended."""
        return self._over.is_set()

    @asynccontextmanager
    async def opened(self, client: Any, *request: str, **options: Any) -> AsyncIterator[Any]:
        """The response to a request, whose body is yet to be read."""
        before = self._open
        try:
            with client.stream(*request, extensions={"trace": self._traced}, **options) as response:
                self._note(response.extensions.get("network_stream"))  # of a connection that was there before
                yield response
        finally:
            self._open = before  # the client may have others who use it next

    def _traced(self, event: str, found: Mapping[str, Any]) -> None:
        self._note(found.get("return_value"))

    def _note(self, stream: Any) -> None:
        """Know a connection as soon as it is there: it must be possible to shut it down while nothing comes over it.

        Two race here: this thread, with a new connection, and the one that ends it. Whoever is second shuts it down.
        """
        new = stream.get_extra_info("socket") if hasattr(stream, "get_extra_info") else None
        if new is not None:
            self._open = (*self._open, new)
            if self.is_over:
                self._shut_down()

    def _shut_down(self) -> None:
        """Wake whoever reads, as closing would not."""
        for one in self._open:
            with suppress(OSError):  # it may be closed
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    async def chunks(self, response: Any) -> AsyncIterator[bytes]:
        """The body of a response, as it comes in."""
        chunks = response.iter_raw()
        while not self.is_over and (chunk := next(chunks, None)) is not None:
            yield chunk

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """What takes longer fails, and so does whatever else is open."""
        timer = threading.Timer(seconds, self._shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    async def called(self, call: Callable[[], Outcome]) -> Outcome:
        """What something gives that may have to wait."""
        return call()

    async def pause(self, seconds: float) -> None:
        """Wait, but not for longer than until the end."""
        self._over.wait(seconds)

    def end(self) -> None:
        """Have everything that is waited for fail, now and from now on."""
        self._over.set()
        self._shut_down()

    def tell(self) -> None:
        """Wake those who wait for news."""
        with self._news:
            self._news.notify_all()

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for news that make something so."""
        with self._news:
            return self._news.wait_for(is_so, timeout_s)


class Async:
    """The same with an async client, in a task. It ends when that is cancelled."""

    is_over = False
    within = staticmethod(asyncio.timeout)
    pause = staticmethod(asyncio.sleep)

    def __init__(self) -> None:
        self._news = asyncio.Event()

    async def called(self, call: Callable[[], Outcome]) -> Outcome:
        """What something gives that may have to wait."""
        return await asyncio.to_thread(call)

    def opened(self, client: Any, *request: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        """The response to a request, whose body is yet to be read."""
        return client.stream(*request, **options)  # type: ignore[no-any-return]

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        """The body of a response, as it comes in."""
        return response.aiter_raw()  # type: ignore[no-any-return]

    def tell(self) -> None:
        """Wake those who wait for news."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for news that make something so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    await self._news.wait()
        return is_so()
