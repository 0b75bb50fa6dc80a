"""Threads that come at once, or between any two steps of each other."""

import sys
import threading
from contextlib import contextmanager


def at_once(do, count=8):
    """Have so many threads do something at the same time, which take turns often. Gives what they raised."""
    barrier, raised = threading.Barrier(count), []

    def work():
        barrier.wait()
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return raised


@contextmanager
def coming_between(other, number, module):
    """Have something else done before the step of this number that is taken in a module, where another thread might come.

    Gives a list that has it once it was done.
    """
    steps, done = iter(range(number)), []

    def trace(frame, event, argument):
        if frame.f_globals.get("__name__") != module:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not done and next(steps, None) is None:
            done.append(number)
            sys.settrace(None)
            other()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield done
    finally:
        sys.settrace(before)
