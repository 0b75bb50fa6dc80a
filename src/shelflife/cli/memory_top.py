"""`shelflife memory top`: what a memory holds and does, as it happens."""

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from shelflife.cli.tables import counted, printable, table_lines
from shelflife.cli.worth import Doings, Worth

__all__ = ["show_top", "worth_as_json"]

_EVERY_S = 1.0
_MOST_REASONS = 6
_SHORTEST_NAME = 12
"""No server's name is cut to less."""

_HOME, _TO_THE_END = "\x1b[H", "\x1b[J"
_ENDS = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__]
_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def show_top(look: Callable[[], Worth], name: str, *, is_json: bool = False) -> None:
    """Show it until Ctrl-C, at a terminal; elsewhere once."""
    first = look()
    if is_json:
        print(json.dumps(worth_as_json(first)))
    elif not sys.stdout.isatty():
        print("\n".join(_lines(first, first, name, sys.maxsize)))
    else:
        _watch(first, look, name)


def _watch(first: Worth, look: Callable[[], Worth], name: str) -> None:
    for ends in _ENDS:
        signal.signal(ends, _end)
    try:
        print(_OTHER_SCREEN, end="")
        while True:
            width, height = shutil.get_terminal_size()
            shown = [line[:width] for line in _lines(first, look(), name, width)][: height - 1]
            print(_HOME + "".join(f"{line}\x1b[K\n" for line in shown) + _TO_THE_END, end="", flush=True)
            time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        pass
    finally:
        with suppress(OSError):  # the terminal may be gone
            print(_FIRST_SCREEN, end="", flush=True)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _lines(first: Worth, now: Worth, name: str, width: int) -> Iterator[str]:
    """What a person sees. In brackets stands what has happened since they began to look."""
    held, suspect = now.held.total(), now.suspect.total()
    doubtful = f", {suspect:,} to be asked about first" if suspect else ""
    yield f"{counted(held, 'fix', 'fixes')} of {counted(len(now.held), 'server')}{doubtful}, in {name}"
    yield from _summary(now)
    yield ""
    yield from _table(first, now, width)
    if now.reasons:
        yield ""
        yield "why fixes have left"
        for reason, times in now.reasons.most_common(_MOST_REASONS):
            yield f"  {times:>8,}  {reason}"


def _summary(now: Worth) -> Iterator[str]:
    if not now.by_hour:
        yield "It has done nothing yet that was noted."
        return
    begun = time.strftime("%Y-%m-%d %H:00", time.localtime(min(now.by_hour) * 3600))
    yield f"It has spared {counted(now.total.saved, 'refusal')} in the hours from {begun} on."
    asked = now.total.hits + now.total.misses
    if asked:
        yield f"One fix or more was remembered for {100 * now.total.hits / asked:.0f} % of requests."


def _table(first: Worth, now: Worth, width: int) -> list[str]:
    """In a window that is too narrow, servers lose the beginning of their names first, then what is in brackets goes."""
    lines: list[str] = []
    for since in (first, now):
        rows = list(_rows(since, now))
        over = max(len(next(_aligned(rows))) - width, 0)
        longest = max(len(row[0]) for row in rows) - over
        shortest = max(longest, _SHORTEST_NAME)
        lines = [*_aligned([(_ending(row[0], shortest), *row[1:]) for row in rows])]
        if longest >= shortest:
            break
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    heads = ("server", "fixes", *Doings._fields)
    return table_lines(heads, rows, right=range(1, len(heads)))


def _ending(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"…{name[len(name) - longest + 1 :]}"


def _rows(first: Worth, now: Worth) -> Iterator[tuple[str, ...]]:
    for root in now.roots:
        yield printable(root), f"{now.held[root]:,}", *_changed(_of(first, root), _of(now, root))
    if len(now.roots) != 1:
        yield "all", f"{now.held.total():,}", *_changed(first.total, now.total)


def _of(worth: Worth, root: str) -> Doings:
    return worth.by_root.get(root, Doings())


def _changed(first: Sequence[int], now: Sequence[int]) -> Iterator[str]:
    for before, count in zip(first, now, strict=True):
        yield f"{count:,} (+{count - before:,})" if count > before else f"{count:,}"


def worth_as_json(worth: Worth) -> dict[str, object]:
    """The same, for programs."""
    return {
        "fixes": worth.held.total(),
        "total": worth.total._asdict(),
        "servers": {
            root: {"fixes": worth.held[root], "suspect": worth.suspect[root], **_of(worth, root)._asdict()}
            for root in worth.roots
        },
        "evictions": {reason.name.lower(): times for reason, times in worth.reasons.most_common()},
        "hours": [
            {"at": time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(hour * 3600)), **doings._asdict()}
            for hour, doings in worth.by_hour.items()
        ],
    }
