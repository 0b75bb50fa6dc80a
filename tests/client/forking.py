"""Forking while threads use or make memories: for a process of its own, which is small, so that a fork takes little."""

import os
import signal
import sys
import threading

from shelflife.client import Memory, SqliteStore
from tests.client.responses import rejection, said


def in_child(do):
    """Whether something is so in a child process, which is ended when it hangs."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        is_so = False
        try:
            is_so = do()
        finally:
            os._exit(0 if is_so else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def recalled(memory):
    return memory.recall("http://h", "POST /x", {"a": 1})


def uses(memory):
    memory.observe(said(rejection()))
    return len(recalled(memory)) == 1


def all_in_children(do, count, meanwhile):
    """Whether something is so in so many children, one after another, while three threads do something else and take turns often."""
    is_over = threading.Event()

    def work():
        number = 0
        while not is_over.is_set():
            number += 1
            meanwhile(number)

    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        return all(in_child(do) for _ in range(count))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def use_a_memory(path, does):
    """Children use a memory whatever the threads of this process are doing with it."""
    memory = Memory(SqliteStore(path, busy_timeout_s=10) if path else None)
    memory.observe(said(rejection()))

    def meanwhile(number):
        if does == "recalls":
            recalled(memory)
        else:
            memory.observe(said(rejection(parameters={"x": number})))

    return all_in_children(lambda: uses(memory), 40, meanwhile)


def make_memories(path):
    """Nothing goes wrong in a fork while others make memories."""
    failures = []
    sys.unraisablehook = failures.append  # what goes wrong around a fork goes here
    are_well = all_in_children(lambda: not failures, 100, lambda number: Memory(SqliteStore(path)))
    return are_well and not failures
