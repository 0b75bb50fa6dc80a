"""Listening for the signals that tell a process to end.

A server that is told to end waits for its open responses, and does not tell the app. It would wait for ever for an
endless one. So endless responses hear the signal themselves. Whoever handled it before still does.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any
from weakref import WeakMethod

__all__ = ["hear_of_the_end"]

_Handler = Callable[[int, FrameType | None], Any]
_OnEnd = Callable[[asyncio.AbstractEventLoop], None]

_handlers: dict[int, _Handler] = {}
"""What handles each signal now, before it calls the handler that was there."""

_on_end: tuple[WeakMethod[_OnEnd], ...] = ()
"""Never changed, only replaced: a signal may come at any moment, even in the middle of a change."""


def hear_of_the_end(on_end: _OnEnd) -> None:
    """Call this method with the running event loop when a signal tells the process to end.

    Asking again costs little and changes nothing.
    """
    global _on_end
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread gets signals; a server in another thread is ended in another way
    method = WeakMethod(on_end)
    if method not in _on_end:
        _on_end = (*(one for one in _on_end if one() is not None), method)
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if callable(handler) and handler is not _handlers.get(number):
            _handlers[number] = _notifying(handler)
            signal.signal(number, _handlers[number])


def _notifying(handler: _Handler) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):  # no loop runs: nothing is open
            loop = asyncio.get_running_loop()
            for method in _on_end:
                on_end = method()
                if on_end is not None:
                    # Not right now: the code that the signal interrupts may hold a lock that this needs.
                    loop.call_soon_threadsafe(on_end, loop)
        handler(number, frame)

    return handle
