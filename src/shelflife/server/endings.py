"""Hearing of the signals that tell a process to end.

A server that is told to end waits for its open responses and tells the app nothing meanwhile; it would wait for an endless one for ever. So the endless ones
listen to the signal as well. Whoever handles it goes on to do so.
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
_Told = Callable[[asyncio.AbstractEventLoop], None]

_handlers: dict[int, _Handler] = {}
"""What handles each signal in the place of whoever did before."""

_to_tell: tuple[WeakMethod[_Told], ...] = ()
"""Never changed, only replaced: a signal comes at any moment."""


def hear_of_the_end(told: _Told) -> None:
    """Call this method in the running event loop, with the loop, when a signal tells the process to end. To ask again costs little and changes nothing."""
    global _to_tell
    if threading.current_thread() is not threading.main_thread():
        return  # signals come to the main thread alone; a server elsewhere is ended in another way
    method = WeakMethod(told)
    if method not in _to_tell:
        _to_tell = (*(one for one in _to_tell if one() is not None), method)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if callable(handler) and handler is not _handlers.get(number):
            _handlers[number] = _telling(loop, handler)
            signal.signal(number, _handlers[number])


def _telling(loop: asyncio.AbstractEventLoop, handler: _Handler) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        for method in _to_tell:
            told = method()
            if told is not None:
                with suppress(RuntimeError):  # the loop has ended already
                    # Not at once: the code that the signal interrupts may hold a lock that is needed.
                    loop.call_soon_threadsafe(told, loop)
        handler(number, frame)

    return handle
