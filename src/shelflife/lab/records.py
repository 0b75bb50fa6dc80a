"""What a run writes down as it goes: one line of JSON a record. Scores and exhibits are made from these alone."""

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from shelflife.client.entries import Entry
from shelflife.contract.values import same_json
from shelflife.errors import ShelflifeError
from shelflife.lab.scenarios import Split
from shelflife.lab.spec import RunSpec
from shelflife.lab.wordings import Wording

__all__ = [
    "FORMAT",
    "Alerted",
    "Asked",
    "Attempted",
    "ClientScored",
    "Disclosed",
    "Distrusted",
    "Drifted",
    "EpisodeEnded",
    "Evicted",
    "Foreseen",
    "Given",
    "Judged",
    "Model",
    "Record",
    "RecordFile",
    "RecordsError",
    "Restamped",
    "RunEnded",
    "RunStarted",
    "Shown",
    "compressed",
    "end_with_a_whole_line",
    "for_a_file",
    "read_records",
]


FORMAT: Final = 3
"""The number of this format of records. Files of another are refused."""


_COMPRESSED = ".gz"


class RecordsError(ShelflifeError):
    """Records cannot be written or read: one sentence for people."""


class Model(msgspec.Struct, frozen=True):
    """Which model was asked for, and which the vendor says it served."""

    requested: str
    served: str | None


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag="run started"):
    """What is played, and what is needed to score it."""

    format: Literal[3]
    spec: RunSpec
    title: str
    """Of the stream, for people."""

    api: str
    planner_kind: Literal["simulated", "model"]
    tuned_to: str | None
    """The model of the paper's that a simulated planner was tuned to."""

    model: Model | None
    hostile: str | None
    """What was done to the agents."""

    digest: str
    """Of the stream as it was played, and of the address of the model."""

    is_remembering: bool
    """Whether the arm has a memory at all."""

    classes: list[str]
    """The class of every episode."""

    families: list[str]
    """The family of every episode."""

    hints: dict[str, str]
    """By family, what the server's fix does to a request; families without a constraint are not there."""

    governed: str
    eligible: list[int]
    first_meetings: list[int]
    stale_slots: list[int]
    split: Split | None
    started_at: str
    version: str
    """Of shelflife."""

    system: str = ""
    """What the planner was told before any task."""

    history: str | None = None
    """Whose real releases the drift was; None where it was thought up."""

    wording: Wording | None = None
    """The words around all that it was told; None in records from before there were several, which have the plain one."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered fix that went into a first attempt, or that was evicted."""

    id: str
    type: str
    parameters: dict[str, Any]
    tables: tuple[str, ...]
    rows: tuple[str, ...] | None
    rules: tuple[str, ...] | None
    learned_in: int
    """The episode."""


class Attempted(msgspec.Struct, frozen=True, kw_only=True, tag="attempt"):
    """One answer of the planner, and what the server said to it."""

    episode: int
    attempt: int
    prompt: str
    """A digest of the messages that the planner was given."""

    text: str
    """What it answered."""

    served: str | None
    prompt_tokens: int
    completion_tokens: int
    token_source: Literal["vendor", "estimated"]
    shown: list[Shown]
    """The remembered fixes that it was shown, or that were applied to its request."""

    status: int | None
    """None when there was no request in the answer."""

    agent: int = 0
    task: str = ""
    """Of a first attempt: the task as the planner was given it. Later ones are given the request and the answer before."""

    request: str = ""
    """The JSON of the request as it was sent last; empty when there was none in the answer."""

    answer: str = ""
    """What the server said to it, as the planner is shown it."""

    used: list[str] = []
    """The ids of the remembered fixes whose values were in the request when it was sent first."""

    carried: list[str] = []
    """The same when it was sent last."""

    fitting: list[str] = []
    """The ids of those that were used, and that the server would give to this very task."""

    mended: int = 0
    """How often the request was refused for stale remembered values, and was mended without the planner.

    Bytes are of all that was sent and came back. The status is the last.
    """

    mended_with: list[Shown] = []
    """The fresh fixes that took the place of the stale ones."""

    injected: list[str] = []
    """The fields of the request, when it was sent last, that had the value that a server which injects wants."""

    request_bytes: int = 0
    """Of the body."""

    contract_request_bytes: int = 0
    """Of the contract's headers of the request."""

    other_header_bytes: int = 0
    """Of start lines and all other headers, both ways."""

    response_bytes: int = 0
    """Of the body, and of the contract's headers."""

    contract_bytes: int = 0
    """Of the response: what is there only for the sake of invalidation."""


class EpisodeEnded(msgspec.Struct, frozen=True, kw_only=True, tag="episode"):
    """How a task came out."""

    episode: int
    in_class: str
    attempts: int
    is_completed: bool
    agent: int = 0


class Given(msgspec.Struct, frozen=True):
    """A fix that the server would give."""

    type: str
    parameters: dict[str, Any]
    tables: list[str]
    """Those that it would name with it."""

    def is_same(self, other: "Entry | Shown") -> bool:
        """Whether it is what is remembered."""
        return self.type == other.type and same_json(self.parameters, other.parameters)


class Judged(msgspec.Struct, frozen=True):
    """What would take the place of a remembered fix."""

    request: dict[str, Any]
    """The one whose refusal taught it, or that the memory had asked about."""

    fixes: list[Given]
    """All that the server would give to that request. The remembered fix is still true when it is one of these."""


class Drifted(msgspec.Struct, frozen=True, kw_only=True, tag="drift"):
    """What the server reported of a change of its data."""

    after: int
    says: str
    table: str | None
    rows: list[str]
    """The rows that were added, removed or changed, as `table:key`: those that a remembered fix rests on, and some others."""

    rules: list[str]
    """The rules that were added or removed, as `table:relation`."""

    more_rows: int = 0
    """How many other rows were."""

    judged: dict[str, Judged] = {}
    """Of entries that were learned until then, by their id: what the server would give in their place from now on.

    Of each there is one with the first drift since it was learned, and another whenever that is no longer so.
    """


class Evicted(msgspec.Struct, frozen=True, kw_only=True, tag="evicted"):
    """The memory has dropped an entry because of what the server said."""

    episode: int
    reason: str
    entry: Shown
    agent: int = 0
    is_given_again: bool = False
    """Of one that was asked about, and was not confirmed: the answer has the same fix all the same, for other requests or by other tables.

    So it is remembered as before, and nothing was evicted.
    """


class Restamped(msgspec.Struct, frozen=True, kw_only=True, tag="restamped"):
    """The memory has kept entries though a table that they rest on had moved, or they had come to rest on another."""

    episode: int
    entries: list[str]
    """Their ids."""

    agent: int = 0


class Alerted(msgspec.Struct, frozen=True, kw_only=True, tag="alerted"):
    """The memory has noticed that the rules changed."""

    episode: int
    noticed_by: str
    agent: int = 0


class Distrusted(msgspec.Struct, frozen=True, kw_only=True, tag="distrusted"):
    """The memory does not believe what the server says of its state."""

    episode: int
    why: str
    agent: int = 0


class Disclosed(msgspec.Struct, frozen=True, kw_only=True, tag="disclosed"):
    """The server's own names that agents were told. Those that stand in requests and fixes anyway are left out."""

    tables: list[str]
    keys: list[str]
    relations: list[str]


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """The memory has asked the server something of its own accord, or has heard its change feed."""

    episode: int
    url: str
    status: int
    question_bytes: int
    """Of the URL, of what was sent and of the answer's body. Of a feed, what it has told since the last of these."""

    whole_bytes: int = 0
    """Of the whole messages, both ways: start lines, all headers and bodies, as HTTP/1.1 has them."""

    agent: int = 0


class Foreseen(msgspec.Struct, frozen=True, kw_only=True, tag="foreseen"):
    """Before something that is remembered was used: how likely it was to be stale, whether the server was asked, and whether it was stale."""

    episode: int
    chance: float
    asked: bool
    stale: bool
    agent: int = 0


class ClientScored(msgspec.Struct, frozen=True, kw_only=True, tag="client scored"):
    """What the server makes of the agent from its requests: before the first change, and at the end."""

    after: int
    """The episode before it."""

    verdict: str


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag="run ended"):
    """The run is whole, and where its time went."""

    planner_s: float
    memory_s: float
    """Without its questions."""

    server_s: float
    """Without the questions of the memory."""

    http_s: float
    questions_s: float = 0.0
    """Of the memory's questions, from asking to answer."""

    whole_s: float


Record = (
    RunStarted
    | Attempted
    | EpisodeEnded
    | Drifted
    | Evicted
    | Restamped
    | Alerted
    | Distrusted
    | Asked
    | Disclosed
    | Foreseen
    | ClientScored
    | RunEnded
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


class RecordFile:
    """A file of records. One process at a time adds to it, and each record is there once it was written.

    A last line that was cut off by the end of its process is taken away, or the next record would stand behind it.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise _cannot_write(path, error) from error
        self.path = path
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_with_a_whole_line(self._file)
        except BlockingIOError as error:
            self._file.close()
            raise RecordsError(f"another process is writing {path}") from error
        except OSError as error:
            self._file.close()
            raise _cannot_write(path, error) from error

    def __call__(self, record: Record) -> None:
        """Add a record."""
        try:
            self._file.write(_encode(record) + b"\n")
            self._file.flush()
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def __enter__(self) -> "RecordFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def end_with_a_whole_line(file: BinaryIO) -> None:
    """Take away a last line that was cut off by the end of its process."""
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)


def _cannot_write(path: Path, error: OSError) -> RecordsError:
    return RecordsError(f"cannot write {path}: {os.strerror(error.errno or 0)}")


def for_a_file(text: str) -> str:
    """A text as a part of a file's name."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "._=-") else "_" for char in text)


def read_records(path: Path) -> list[Record]:
    """The records of a run, compressed or not. A last line that was cut off by the end of its process is left out."""
    try:
        raw = path.read_bytes()
        if path.suffix == _COMPRESSED:
            raw = gzip.decompress(raw)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise RecordsError(f"cannot read {path}: it is not, or not wholly, compressed with gzip") from None
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    return list(_decoded(raw.split(b"\n")[:-1], path))


def compressed(path: Path) -> Path:
    """Where the records of a run are that were compressed: beside where they were written."""
    return path.with_name(path.name + _COMPRESSED)


def _decoded(lines: Iterable[bytes], path: Path) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        try:
            yield _decode(line)
        except RecursionError:
            raise RecordsError(f"{path}, line {number}, is no record: it is nested too deeply") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if _is_of_another_format(line):
                raise RecordsError(
                    f"{path} is not in format {FORMAT} of records, the only one that this version of shelflife reads:"
                    " move it away and play the run again"
                ) from None
            raise RecordsError(f"{path}, line {number}, is no record: {error}") from None


class _Opening(msgspec.Struct, tag="run started"):
    """All that every format has in common."""

    format: int | None = None


def _is_of_another_format(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_Opening).format != FORMAT
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
