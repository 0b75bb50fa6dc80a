"""A run as people can read it: its episodes as conversations, word for word, from its records alone."""

from collections.abc import Iterator, Sequence

import msgspec

from shelflife.lab.prompting import Turn, as_shown, conversation, digest_of_messages
from shelflife.lab.records import (
    Alerted,
    Asked,
    Attempted,
    Distrusted,
    Drifted,
    EpisodeEnded,
    Evicted,
    Record,
    Restamped,
    RunStarted,
    Shown,
)
from shelflife.lab.spec import PLAIN_WORDING, Reads
from shelflife.lab.wordings import Wording, wordings

__all__ = ["transcript_of"]


def transcript_of(records: Sequence[Record], episode: int | None = None) -> Iterator[str]:
    """The paragraphs of a run, or of one of its episodes. The first of the records says what was played."""
    start, *rest = records
    if not isinstance(start, RunStarted):
        return
    yield _heading(start)
    yield _said("system", start.system)
    opened: tuple[int | None, int] = None, 0
    spoken = _Spoken(start.system, start.wording or wordings()[PLAIN_WORDING], start.spec.conduct.reads)
    for record in rest:
        if not _is_of(record, episode):
            continue
        index: int | None = getattr(record, "episode", None)
        agent: int = getattr(record, "agent", 0)
        if index is not None and (index, agent) != opened:
            opened = index, agent
            yield from _opening(start, index, agent)
        if isinstance(record, Attempted):
            yield from _attempt(record, spoken)
        elif paragraph := _event(record):
            yield paragraph


def _is_of(record: Record, episode: int | None) -> bool:
    """Whether a record belongs to an episode: of a drift, whether it came right before."""
    if episode is None:
        return True
    if isinstance(record, Drifted):
        return record.after == episode - 1
    return getattr(record, "episode", None) == episode


def _heading(start: RunStarted) -> str:
    spec = start.spec
    how = [spec.arm, spec.planner, f"seed {spec.seed}", f"consume {spec.consume}", f"level {spec.level}"]
    if spec.wording != PLAIN_WORDING:
        how.append(f"wording {spec.wording}")
    return f"{spec.stream}: {start.title}\n{', '.join([*how, *spec.conduct.words])}; played at {start.started_at}"


def _opening(start: RunStarted, episode: int, agent: int) -> Iterator[str]:
    if episode < len(start.families):  # what is heard after the last is of none
        by = f", agent {agent}" if start.spec.conduct.agents > 1 else ""
        yield f"=== episode {episode}: {start.families[episode]} ({start.classes[episode]}){by} ==="


class _Spoken:
    """What was said so far in an episode."""

    def __init__(self, system: str, wording: Wording, reads: Reads) -> None:
        self.system = system
        self.reads = reads
        self.wording = wording
        self.task = ""
        self.turns: list[Turn] = []

    @property
    def digest(self) -> str:
        return digest_of_messages(conversation(self.system, self.task, self.turns, self.wording))


def _attempt(one: Attempted, spoken: _Spoken) -> Iterator[str]:
    if one.attempt == 1:
        spoken.task, spoken.turns = one.task, []
        yield _said("task", one.task)
    if spoken.digest != one.prompt:
        yield "(The planner was given other messages than these: their digest is not the one on record.)"
    if one.shown:
        yield "\n".join(["remembered fixes that went into it:", *map(_fix, one.shown)])
    yield _said(f"planner, attempt {one.attempt}", one.text)
    if one.status is None:
        yield _said("lab", spoken.wording.no_request)
        spoken.turns.append(Turn(one.text, None, ""))
        return
    if one.request != one.text:
        mended = f", mended {one.mended} times" if one.mended else ""
        yield _said(f"request as it was sent{mended}", one.request)
    shown = as_shown(one.answer, spoken.reads)
    yield _said(f"server, {one.status}", shown)
    spoken.turns.append(Turn(one.request, one.status, shown))


def _event(record: Record) -> str | None:
    match record:
        case EpisodeEnded(attempts=attempts, is_completed=is_completed):
            return f"{'completed' if is_completed else 'given up'} after {attempts} attempt{'s' * (attempts != 1)}"
        case Drifted():
            more = [f"and {record.more_rows:,} more rows"] if record.more_rows else []
            changed = ", ".join([*record.rows, *more, *record.rules]) or "no row and no rule changed"
            when = f"after episode {record.after}" if record.after >= 0 else "before the first episode"
            return f"=== drift {when}: {record.says or record.table or 'rules'} ({changed}) ==="
        case Evicted():
            again = ", and the same fix was given again" if record.is_given_again else ""
            return f"memory: dropped ({record.reason}{again})\n{_fix(record.entry)}"
        case Restamped():
            return f"memory: kept {len(record.entries)} though a table that they rest on had moved"
        case Alerted():
            return f"memory: noticed by the {record.noticed_by} that rules changed"
        case Distrusted():
            return f"memory: does not believe the server ({record.why})"
        case Asked():
            return f"memory: asked {record.url} ({record.status}, {record.question_bytes} bytes)"
        case _:
            return None


def _said(who: str, text: str) -> str:
    """Word for word, but for what would do something to a terminal."""
    lines = text.rstrip("\n").split("\n")
    return "\n".join([f"{who}:", *(f"  {''.join(map(_printable, line))}" for line in lines)])


def _printable(char: str) -> str:
    return char if char.isprintable() else ascii(char)[1:-1]


def _fix(entry: Shown) -> str:
    parameters = msgspec.json.encode(entry.parameters).decode()
    rests_on = ", ".join(entry.tables if entry.rows is None else entry.rows)
    return f"  {entry.type} {parameters}, learned in episode {entry.learned_in}, rests on {rests_on or 'nothing'}"
