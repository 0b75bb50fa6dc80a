"""Answers of a model that are kept: at temperature 0 the same prompt has the same answer, so nobody need pay for it twice."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from shelflife.client.entries import digest_of
from shelflife.lab.planners.models import ModelPlanner
from shelflife.lab.planners.protocol import Message, PlannerError, Proposal
from shelflife.lab.prompting import digest_of_messages
from shelflife.lab.records import Model, RecordsError, end_with_a_whole_line

__all__ = ["Answers", "AskedOnce", "holds_answers"]


class _Kept(msgspec.Struct, frozen=True):
    """One line of the file."""

    key: str
    proposal: Proposal


_OPENING = b'{"key":"'
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept).decode


class Answers:
    """A file of answers, each there once it was given. A killed process loses none but the one it was writing.

    Several processes may add to it at once. What another has added is seen when it is asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._by_key: dict[str, Proposal] = {}
        self._lines_read, self._bytes_read = 0, 0
        self._read_on()

    def get(self, key: str) -> Proposal | None:
        """The answer that is kept under a key, with the tokens that it took when it was given."""
        if key not in self._by_key:
            self._read_on()
        return self._by_key.get(key)

    def _read_on(self) -> None:
        """Read what has been added since."""
        with self._alone() as file:
            file.seek(self._bytes_read)
            *lines, cut_off = file.read().split(b"\n")
        for line in lines:
            self._lines_read += 1
            try:
                kept = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                told = f"{self.path}, line {self._lines_read}, is no kept answer: {error}"
                raise RecordsError(told) from None
            self._by_key[kept.key] = kept.proposal
            self._bytes_read += len(line) + 1
        if not cut_off.startswith(_OPENING[: len(cut_off)]):  # somebody else's, which nobody may take away
            raise RecordsError(
                f"{self.path}, line {self._lines_read + 1}, is no kept answer: it has another beginning"
            )

    def add(self, key: str, proposal: Proposal) -> None:
        """Keep an answer."""
        with self._alone() as file:
            end_with_a_whole_line(file)  # one without an end is of a process that was killed
            file.write(_encode(_Kept(key, proposal)) + b"\n")
        self._by_key[key] = proposal

    @contextmanager
    def _alone(self) -> Iterator[BinaryIO]:
        """The file, for as long as no other process has it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                yield file
        except OSError as error:
            raise RecordsError(
                f"cannot keep answers in {self.path}: {os.strerror(error.errno or 0)}"
            ) from error


def holds_answers(path: Path) -> bool:
    """Whether a file is one of answers, and no record."""
    with path.open("rb") as file:
        return file.read(len(_OPENING)) == _OPENING


class AskedOnce:
    """A model that is asked nothing again that it has answered."""

    kind: Literal["simulated", "model"] = "model"

    def __init__(self, planner: ModelPlanner, model: Model, path: Path) -> None:
        """`model` is what a probe has shown: another one under the same name has its own answers."""
        if planner.settings.temperature is None:
            raise PlannerError(
                f"{planner.name} takes no temperature, so the same prompt may have another answer each time:"
                " none can be kept"
            )
        self.name = planner.name
        self._planner = planner
        self._model = model
        self._answers = Answers(path)

    def propose(self, messages: Sequence[Message]) -> Proposal:
        key = digest_of(self._model, self._planner.settings, digest_of_messages(messages))
        kept = self._answers.get(key)
        if kept is None:
            kept = self._planner.propose(messages)
            self._answers.add(key, kept)
        return kept
