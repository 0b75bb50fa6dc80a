"""`shelflife forecast`: how tables and rows change, and when they are due to change again."""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from shelflife.cli.errors import CommandError, needing
from shelflife.cli.memory import opened, root_in
from shelflife.cli.tables import print_table, printable
from shelflife.client import SqliteStore, StoreError
from shelflife.client.entries import is_below
from shelflife.client.opening import is_file
from shelflife.histories import Histories, changed_names
from shelflife.outlooks import CONFIDENCE, Outlook, outlooks

__all__ = ["add_to"]

_NOTHING = {
    "memory": "Nothing was seen to change. A memory notes that where it is made with a foresight, as in Memory(foresight=Forecast()).",
    "log": "Nothing has changed since the log began, or nothing that says when.",
}
_MOST_SKEW_S = 300.0
"""What is later than now by more than this was noted by a clock that is wrong."""
_HOUR_S = 3_600.0
_UNITS = ((86_400.0, "day"), (_HOUR_S, "hour"), (60.0, "minute"), (1.0, "second"))


class _Told(NamedTuple):
    """What is said of the tables of one server."""

    root: str | None
    looked_at: float
    outlooks: list[Outlook]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "forecast",
        help="say how tables and rows change, and when they are due to change again",
        description="Say of each table and row how often it was seen to change, by what habit, and when it is due to change again: from"
        " what a memory has seen, or from the log of a server.",
    )
    parser.add_argument(
        "where",
        metavar="WHERE",
        help="a memory, or the log of a server: a file or an address, as in postgresql://host/db",
    )
    parser.add_argument(
        "--log", action="store_true", help="an address is that of a log; of a file it is found out"
    )
    parser.add_argument("--namespace", help="which of the memories that share an engine; default by default")
    parser.add_argument(
        "--root", type=root_in, help="of a memory, only what it knows of one server: https://api.example"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=_forecast)


def _forecast(options: argparse.Namespace) -> None:
    source = "log" if _is_log(options) else "memory"
    if source == "log" and (options.root or options.namespace):
        given = "--root" if options.root else "--namespace"
        raise CommandError(f"{given} is for a memory, and this is the log of a server")
    told = list(_by_log(options) if source == "log" else _by_memory(options))
    if options.json:
        print(
            json.dumps(
                {
                    "source": source,
                    "forecasts": [_as_json(one, outlook) for one in told for outlook in one.outlooks],
                }
            )
        )
        return
    if not any(one.outlooks for one in told):
        print(_NOTHING[source])
        return
    for one in told:
        if one.outlooks:
            moment = _to_the_second if any(map(_is_quick, one.outlooks)) else _to_the_minute
            print(f"{f'{printable(one.root)}, ' if one.root else ''}as of {moment(one.looked_at)}\n")
            heads = ("what", "changes", "last", "habit", f"due ({CONFIDENCE:.0%})")
            print_table(heads, [_row(outlook) for outlook in one.outlooks])


def _is_log(options: argparse.Namespace) -> bool:
    """Whether it is a log. A file that is none of the two is taken for a memory, which says what is wrong with it."""
    if options.log:
        return True
    try:
        path = is_file(options.where)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if path is None or not Path(path).is_file():
        return False
    try:
        SqliteStore(path, read_only=True).close()
    except StoreError:
        with needing("server"):
            from shelflife.server import LogError
            from shelflife.server.logs import log_at
        try:
            with closing(log_at(path, read_only=True)) as log:
                log.declared()
        except LogError:
            return False
        return True
    return False


def _by_memory(options: argparse.Namespace) -> Iterator[_Told]:
    options.memory = options.where
    with opened(options, read_only=True) as store:
        for root in store.roots():
            histories = store.known(root).knowledge.histories
            if histories is not None and (options.root is None or is_below(root, options.root)):
                yield _Told(root, histories.looked_at, outlooks(histories, histories.looked_at))


def _by_log(options: argparse.Namespace) -> Iterator[_Told]:
    """By when each change was made. What the log was begun with, and new tables, are no changes."""
    with needing("server"):
        from shelflife.server import LogError
        from shelflife.server.logs import is_file as is_log_file
        from shelflife.server.logs import log_at
        from shelflife.server.state import State
    try:
        path = is_log_file(options.where)
        if path is not None and not Path(path).is_file():
            raise CommandError(f"there is no file {path}")
        with needing("postgres"), closing(log_at(options.where, read_only=True)) as log:
            state = log.read(-1, "")
    except LogError as error:
        raise CommandError(str(error)) from None
    latest = time.time() + _MOST_SKEW_S
    if isinstance(state, State) and (made := [one for one in state.made if 0 < one.at <= latest]):
        whole = {entry.number: entry.change.tables for entry in state.tail}
        histories = Histories(made[0].at)
        for header in made:
            at = max(header.at, histories.looked_at)  # workers' clocks may differ
            # Of a change whose rows were too many to be kept, that the tables changed is still known.
            rows = {name: one.delta.after for name, one in whole.get(header.number, {}).items()}
            tables = [name for name in header.tables if name not in header.new]
            changed = [name for table in tables for name in changed_names(table, rows.get(table, ()))]
            histories = histories.after(changed, at, at)
        now = max(time.time(), histories.looked_at)
        yield _Told(None, now, outlooks(histories, now))


def _row(outlook: Outlook) -> tuple[str, ...]:
    due = outlook.due
    moment = _to_the_second if _is_quick(outlook) else _to_the_minute
    return (
        printable(outlook.name),
        str(outlook.changes),
        moment(outlook.last_at),
        _words(outlook),
        "cannot be told" if due is None else f"{moment(due.after)} to {moment(due.by)}",
    )


def _is_quick(outlook: Outlook) -> bool:
    """Whether it changes, or is due, within less than an hour: minutes would then say little."""
    due = outlook.due
    return (outlook.usual_gap or _HOUR_S) < _HOUR_S or (due is not None and due.by - due.after < _HOUR_S)


def _words(outlook: Outlook) -> str:
    """The habit of something, for people."""
    gap = outlook.usual_gap
    match outlook.habit:
        case "regular" if gap is not None:
            return f"about every {_length(gap)}"
        case "after another" if outlook.follows is not None:
            return f"after {printable(outlook.follows)}"
        case habit:
            return habit


def _length(seconds: float) -> str:
    size, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    count = seconds / size
    return unit if round(count, 1) == 1 else f"{count:.1f}".removesuffix(".0") + f" {unit}s"


def _to_the_minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _to_the_second(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _as_json(told: _Told, outlook: Outlook) -> Mapping[str, Any]:
    table, _, row = outlook.name.partition(":")
    due = outlook.due
    return {
        "root": told.root,
        "looked_at": told.looked_at,
        "table": table,
        "row": row or None,
        "changes": outlook.changes,
        "last_changed_at": outlook.last_at,
        "habit": outlook.habit,
        "follows": outlook.follows,
        "usual_gap_s": outlook.usual_gap,
        "due": None if due is None else {"after": due.after, "by": due.by, "confidence": CONFIDENCE},
    }
