"""Listening for the signals that tell a process to end.

A server that is told to end waits for its open responses and tells the app nothing meanwhile; it would wait for an endless one for ever. So the endless ones
hear the signal as well. Whoever handled it before goes on to do so.
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
"""What handles each signal in the place of whoever did before."""

_on_end: tuple[WeakMethod[_OnEnd], ...] = ()
"""Never changed, only replaced: a signal comes at any moment, also in the middle of a change."""


def hear_of_the_end(on_end: _OnEnd) -> None:
    """Call this method in the running event loop, with the loop, when a signal tells the process to end. To ask again costs little and changes nothing."""
    global _on_end
    if threading.current_thread() is not threading.main_thread():
        return  # signals come to the main thread alone; a server elsewhere is ended in another way
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
                    # Not at once: the code that the signal interrupts may hold a lock that is needed.
                    loop.call_soon_threadsafe(on_end, loop)
        handler(number, frame)

    return handle
