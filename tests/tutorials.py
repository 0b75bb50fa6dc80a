"""Follows a tutorial as a reader would: saves its programs, runs its commands in order, and looks whether they print what is shown.

A block of Python with the name of a file is saved. In a block of the console each line that begins with `$ ` is run, and what stands below it is
what it prints; a `…` stands for anything. A command that serves something runs on until the next one does. A block of JSON is what the command
before it has printed.
"""

import json
import os
import re
import shlex
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.processes import started, wait_until

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
_BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_SERVES = ("uvicorn ", "shelflife serve ")
_LONGEST_S = 300
SET_UP = ("mkdir ", "python3 -m venv ", ". .venv/bin/activate", "pip install ")
"""How commands begin that are for the set-up. Whoever follows a tutorial in an environment that is there leaves them out."""


def blocks_of(tutorial):
    """What is in each of its blocks: the language, the name of a file, and the text."""
    text = (FOLDER / tutorial).read_text("utf-8")
    found = _BLOCK.findall(text)
    assert 2 * len(found) == len(re.findall(r"^```", text, re.MULTILINE)), "a block is not written as one"
    return found


def set_up_of(tutorial):
    """The commands of the set-up."""
    commands = [
        command
        for language, _, text in blocks_of(tutorial)
        if language == "console"
        for command, _ in _COMMAND.findall(text)
    ]
    return [command for command in commands if command.startswith(SET_UP)]


class Reader:
    """Somebody who follows a tutorial in a folder, with the programs of an environment."""

    def __init__(self, folder, programs):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._folder = folder
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
        self._environment = plain | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "no_proxy": "*"}
        self._server = ExitStack()
        self._printed = ""

    def follow(self, tutorial):
        """To its end."""
        with self._server:
            for language, name, text in blocks_of(tutorial):
                getattr(self, f"_{language}")(name, text)

    def _here(self, text):
        return text.replace("8000", str(self._port))

    def _python(self, name, text):
        (self._folder / name).write_text(self._here(text), "utf-8")

    def _json(self, _, text):
        assert json.loads(self._printed) == json.loads(text)

    def _console(self, _, text):
        for command, shown in _COMMAND.findall(text):
            if command.startswith(_SERVES):
                self._serve(self._here(command))
            elif not command.startswith(SET_UP):
                self._run(self._here(command))
                assert not shown or _is_like(self._printed, self._here(shown)), (
                    f"{command} printed {self._printed}"
                )

    def _serve(self, command):
        self._server.close()
        options = {"cwd": self._folder, "env": self._environment, "stdout": subprocess.DEVNULL}
        self._server.enter_context(started(shlex.split(command), **options))
        wait_until(self._is_answering, _LONGEST_S)

    def _is_answering(self):
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self._port)) == 0

    def _run(self, command):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        self._printed = done.stdout
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}"


def _is_like(printed, shown):
    """Ids are digests, in which the port is too, and columns are as wide as it is."""
    printed, shown = (re.sub(r"\b[0-9a-f]{12}\b", "id", " ".join(text.split())) for text in (printed, shown))
    return re.fullmatch(".*?".join(map(re.escape, shown.split("…"))), printed) is not None
