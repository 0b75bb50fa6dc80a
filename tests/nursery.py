"""Processes of their own that need not import everything first: they are forked off one that has.

As a program it is that one: `nursery.py SOCKET MODULE...`, with what it imports. For each thing it is asked for it forks twice: one process runs the program, the other
waits for it and tells how it ended. It ends when whoever has started it lets go of its input.

All workers of a run share one, which is started before them and imports while they collect.
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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LONGEST_ASKED = 1_000_000


class Forked:
    """A process that was forked: what is used of a `Popen` here."""

    def __init__(self, asking, stdin, stdout, stderr):
        self._asking, self.stdin, self.stdout, self.stderr = asking, stdin, stdout, stderr
        self.pid = self._told()
        self.returncode = None

    def _told(self, timeout=None):
        self._asking.settimeout(timeout)
        told = b""
        while not told.endswith(b"\n"):
            told += self._asking.recv(1) or b"no number\n"  # not more: the next number stays where it is
        return int(told)

    def wait(self, timeout=None):
        if self.returncode is None:
            try:
                self.returncode = self._told(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout) from None
            self._asking.close()
        return self.returncode

    def send_signal(self, number):
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.001)  # if it has ended, another process may have its id by now
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def end(self):
        """Kill it, if it has not ended, and let go of what it was reached by."""
        self.kill()
        self.wait()
        for stream in filter(None, (self.stdin, self.stdout, self.stderr)):
            with suppress(BrokenPipeError):
                stream.close()


class Nursery:
    """Where processes are forked."""

    def __init__(self, path):
        self._path = path

    @contextmanager
    def forked(self, program, *arguments, **options):
        """A process that runs a program, for as long as the block runs. Its input ends with the block."""
        process = self.start(program, *arguments, **options)
        try:
            yield process
        finally:
            process.end()

    def start(self, program, *arguments, env=None, is_heard=False):
        """A process that runs a program until it ends. What it says on its standard error is told here, or can be read."""
        asking = socket.socket(socket.AF_UNIX)
        asking.connect(self._path)
        its_input, stdin = os.pipe()
        out, its_output = os.pipe()
        err, its_errors = os.pipe() if is_heard else (None, os.dup(2))
        asked = [
            program,
            [str(one) for one in arguments],
            str(Path.cwd()),
            dict(os.environ if env is None else env),
        ]
        asked = json.dumps(asked).encode() + b"\n"
        assert len(asked) < _LONGEST_ASKED
        its = [its_input, its_output, its_errors]
        sent = socket.send_fds(asking, [asked], its)
        asking.sendall(asked[sent:])
        for one in its:
            os.close(one)
        return Forked(asking, os.fdopen(stdin, "w"), os.fdopen(out), os.fdopen(err) if is_heard else None)


@contextmanager
def nursery_with(*modules):
    """One whose processes have these modules imported, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="shelflife-") as folder:
        path = f"{folder}/asking"
        command = [sys.executable, "-m", "tests.nursery", path, *modules]
        piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=ROOT, **piped)
        os.register_at_fork(
            after_in_child=process.stdin.close
        )  # it ends with this process, not with what that has forked
        try:
            assert process.stdout.readline() == "listening\n"
            yield Nursery(path)
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()


_PATH = "SHELFLIFE_TESTS_NURSERY"
"""The variable in which workers are told of the one that they share."""
_open = ExitStack()


def shared_nursery():
    """One for all tests of a run, with what most programs of the tests need."""
    if _PATH not in os.environ:
        started = _open.enter_context(
            nursery_with(
                "tests.integrations.followers",
                "shelflife.cli.serve",
                "shelflife.cli.proxy",
                "shelflife.lab.workers",
            )
        )
        os.environ[_PATH] = started._path
        _open.callback(os.environ.pop, _PATH)
    return Nursery(os.environ[_PATH])


def shared_folder():
    """A folder for what one worker has made and others need too. It is removed at the end of the run."""
    shared_nursery()
    return Path(os.environ[_PATH]).parent


def end_shared_nursery():
    """In whichever process has started it."""
    _open.close()


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
    asked, its, *_ = socket.recv_fds(asking, _LONGEST_ASKED, 3)
    while not asked.endswith(b"\n"):
        asked += asking.recv(_LONGEST_ASKED)
    child = os.fork()
    if not child:
        asking.close()
        for number, one in enumerate(its):
            os.dup2(one, number)
            os.close(one)
        _run(*json.loads(asked))
    for one in (0, *its):
        os.close(one)
    with suppress(BrokenPipeError):
        asking.sendall(f"{child}\n".encode())
        asking.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())


def _main():
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("listening", flush=True)
        gc.disable()  # nothing of what is imported is garbage
        for module in sys.argv[2:]:
            importlib.import_module(module)
        gc.freeze()
        gc.enable()
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
