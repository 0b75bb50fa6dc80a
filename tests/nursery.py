"""Processes of their own that need not import everything first: they are forked off one that has.

As a program it is that one: `nursery.py SOCKET MODULE...`, with what it imports. For each thing it is asked for it forks twice: one process runs the program, the other
waits for it and tells how it ended. It ends when whoever has started it lets go of its input.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_LONGEST_ASKED = 1_000_000


class Forked:
    """A process that was forked: what is used of a `Popen` here."""

    def __init__(self, asked, stdin, stdout):
        self._asked, self.stdin, self.stdout = asked, stdin, stdout
        self.pid = int(asked.readline())
        self.returncode = None

    def wait(self):
        if self.returncode is None:
            self.returncode = int(self._asked.readline())
            self._asked.close()
        return self.returncode

    def kill(self):
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """Where processes are forked."""

    def __init__(self, path):
        self._path = path

    @contextmanager
    def forked(self, program, *arguments):
        """A process that runs a program, for as long as the block runs. Its input ends with the block."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self._path)
            its_input, stdin = os.pipe()
            out, its_output = os.pipe()
            asked = json.dumps([program, [str(one) for one in arguments], str(Path.cwd()), dict(os.environ)])
            assert len(asked) < _LONGEST_ASKED
            socket.send_fds(asking, [asked.encode() + b"\n"], [its_input, its_output])
            os.close(its_input)
            os.close(its_output)
            process = Forked(asking.makefile(), os.fdopen(stdin, "w"), os.fdopen(out))
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                with suppress(BrokenPipeError):
                    process.stdin.close()
                process.stdout.close()


@contextmanager
def nursery_with(*modules):
    """One whose processes have these modules imported, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="shelflife-") as folder:
        path = f"{folder}/asking"
        command = [sys.executable, "-m", "tests.nursery", path, *modules]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            yield Nursery(path)
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="session")
def nursery():
    """One for all tests of this process, with what most programs of the tests need."""
    with nursery_with("tests.integrations.followers") as started:
        yield started


def _run(program, arguments, folder, environment):
    """Be a program as if it had just been started."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    status = 1
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:  # noqa: BLE001 - as Python itself does where a program ends
        traceback.print_exc()
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        os._exit(status)


def _look_after_one(asking):
    """In a process of its own: fork once more, and tell the id of that one and how it ends."""
    asked, (its_input, its_output), *_ = socket.recv_fds(asking, _LONGEST_ASKED, 2)
    while not asked.endswith(b"\n"):
        asked += asking.recv(_LONGEST_ASKED)
    child = os.fork()
    if not child:
        asking.close()
        os.dup2(its_input, 0)
        os.dup2(its_output, 1)
        os.close(its_input)
        os.close(its_output)
        _run(*json.loads(asked))
    for one in (0, its_input, its_output):
        os.close(one)
    with suppress(BrokenPipeError):
        asking.sendall(f"{child}\n".encode())
        asking.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())


def _main():
    gc.disable()  # nothing of what is imported is garbage
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([0, listener], [], [])
            if 0 in readable:
                return
            asking, _ = listener.accept()
            if not os.fork():
                listener.close()
                _look_after_one(asking)
                os._exit(0)
            asking.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


if __name__ == "__main__":
    _main()
