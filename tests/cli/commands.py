"""`shelflife` with a clean environment: as a person starts it, in a process of its own, or without waiting for one."""

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import httpx2

from shelflife.cli import main
from tests.processes import started

SHELFLIFE = [sys.executable, "-m", "shelflife.cli"]


def environment(**variables):
    """This process's variables without its secrets, and these."""
    cleaned = {k: v for k, v in os.environ.items() if k not in ("SHELFLIFE_ADMIN_TOKEN", "STRIPE_API_KEY")}
    return cleaned | variables


def run(*arguments, **variables):
    """A process that has come to its end."""
    return subprocess.run(
        [*SHELFLIFE, *arguments],
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=600,
        check=False,
    )


def run_here(*arguments, **variables):
    """The same in this process: for commands that come to their end soon, and of which only the words matter."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment(**variables), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            status = main([*arguments])
        except SystemExit as ended:  # the parser's
            status = ended.code
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


class Serving:
    """`shelflife serve`, or another command that serves, as a process, until the block ends."""

    def __init__(self, *arguments, **variables):
        command = [] if arguments[0] == "proxy" else ["serve"]
        self._started = started(
            [*SHELFLIFE, *command, *arguments, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**variables),
        )

    def __enter__(self):
        self.process = self._started.__enter__()
        first = self.process.stdout.readline()
        assert re.search(r"http://127\.0\.0\.1:\d+", first), self.process.stderr.read()
        self.greeting = first + self.process.stdout.readline()
        self.client = httpx2.Client(base_url=first.split()[-1], trust_env=False)
        return self

    def __exit__(self, *exception):
        self.client.close()
        self._started.__exit__(*exception)
