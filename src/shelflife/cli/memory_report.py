"""`shelflife memory report`: one page of HTML on what a memory was worth over time."""

import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from shelflife.cli.tables import counted, printable
from shelflife.cli.worth import MEANINGS, Doings, Worth

__all__ = ["report_page"]

_HOUR_S = 3600
_MOST_HOURS = 72
"""Of a longer time each bar is a day."""
_MOST_DAYS = 120
"""Of a longer time only these are drawn: the last ones."""

_WIDTH, _HEIGHT, _MARGIN, _BELOW = 960, 240, 44, 22
_MOST_LABELS = 8


class _Bar(NamedTuple):
    """A stretch of time."""

    label: str
    doings: Doings


def report_page(worth: Worth, name: str, now: float) -> str:
    """The page, whole: nothing in it is loaded from anywhere."""
    total = worth.total
    template = Template(files("shelflife.cli").joinpath("memory_report.html").read_text(encoding="utf-8"))
    return template.substitute(
        headline=_headline(total),
        name=_text(name),
        span=_span(worth, now),
        facts="".join(_fact(*fact) for fact in _facts(worth, total)),
        sections="\n".join(_sections(worth)),
    )


def _headline(total: Doings) -> str:
    if not any(total):
        return "This memory has done nothing yet that was noted"
    if not total.saved:
        return "This memory has spared no refusal yet"
    return f"This memory has spared {counted(total.saved, 'refusal')}"


def _span(worth: Worth, now: float) -> str:
    until = f"as of {_moment(now)}"
    if not worth.by_hour:
        return until
    return f"in the hours from {_moment(min(worth.by_hour) * _HOUR_S)} on, {until}"


def _facts(worth: Worth, total: Doings) -> Iterator[tuple[str, str]]:
    asked = total.hits + total.misses
    yield "refusals spared", f"{total.saved:,}"
    yield (
        "of requests had one fix or more remembered",
        f"{100 * total.hits / asked:.0f} %" if asked else "none",
    )
    yield "fixes learned", f"{total.learned:,}"
    yield (
        "left because they went stale",
        f"{sum(n for why, n in worth.reasons.items() if why.is_invalidation):,}",
    )
    yield "fixes held now", f"{worth.held.total():,}"


def _fact(what: str, value: str) -> str:
    return f"<div><dt>{what}</dt><dd>{value}</dd></div>"


def _sections(worth: Worth) -> Iterator[str]:
    if worth.by_hour:
        bars, unit = _bars(worth)
        yield _section(
            f"By {unit}",
            "Refusals that were spared, and below the line the fixes that left.",
            f'<div class="wide">{_drawn(bars)}</div>'
            '<p class="key"><i class="saved"></i>refusals spared<i class="left"></i>fixes that left</p>',
        )
    if worth.roots:
        rows = [(_text(root), worth.held[root], *worth.by_root.get(root, Doings())) for root in worth.roots]
        meanings = "".join(f"<li><b>{what}</b>: {means}</li>" for what, means in MEANINGS.items())
        table = _table(("server", "fixes", *Doings._fields), rows)
        yield _section("By server", "", f"{table}<ul>{meanings}</ul>")
    if worth.reasons:
        told = [(_text(reason), times) for reason, times in worth.reasons.most_common()]
        yield _section("Why fixes have left", "", _table(("because", "fixes"), told))


def _section(title: str, guide: str, content: str) -> str:
    told = f"<p>{guide}</p>" if guide else ""
    return f"<section><h2>{title}</h2>{told}{content}</section>"


def _table(heads: Sequence[str], rows: Iterable[tuple[str, *tuple[int, ...]]]) -> str:
    head = "".join(f'<th scope="col">{one}</th>' for one in heads)
    lines = (
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{count:,}</td>" for count in counts)}</tr>'
        for name, *counts in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _bars(worth: Worth) -> tuple[list[_Bar], str]:
    """One bar for each hour, or for each day where there are many, without a gap between the first and the last."""
    first, last = min(worth.by_hour), max(worth.by_hour)
    if last - first < _MOST_HOURS:
        return [
            _Bar(time.strftime("%a %H:00", time.localtime(hour * _HOUR_S)), worth.by_hour.get(hour, Doings()))
            for hour in range(first, last + 1)
        ], "hour"
    by_day: dict[str, Doings] = {}
    for hour in range(first, last + 1):
        day = time.strftime("%d %b %Y", time.localtime(hour * _HOUR_S))
        both = zip(by_day.get(day, Doings()), worth.by_hour.get(hour, Doings()), strict=True)
        by_day[day] = Doings(*map(sum, both))
    return [_Bar(*one) for one in by_day.items()][-_MOST_DAYS:], "day"


def _drawn(bars: Sequence[_Bar]) -> str:
    """What was spared upwards, what left downwards, on one scale."""
    most_up = max(bar.doings.saved for bar in bars)
    most_down = max(bar.doings.evicted for bar in bars)
    scale = (_HEIGHT - _BELOW - 16) / max(most_up + most_down, 1)
    zero = 8 + most_up * scale
    step = (_WIDTH - _MARGIN) / len(bars)
    width = min(step * 0.7, 36)
    every = -(-len(bars) // _MOST_LABELS)
    parts = [f'<line x1="{_MARGIN}" x2="{_WIDTH}" y1="{zero:.1f}" y2="{zero:.1f}"/>']
    for at, (label, doings) in enumerate(bars):
        middle = _MARGIN + (at + 0.5) * step
        for count, kind, top in (
            (doings.saved, "saved", zero - doings.saved * scale),
            (doings.evicted, "left", zero),
        ):
            if count:
                parts.append(
                    f'<rect class="{kind}" x="{middle - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}"'
                    f' height="{count * scale:.1f}" rx="1.5"><title>{label}: {count:,}</title></rect>'
                )
        if at % every == 0:
            parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 4}" text-anchor="middle">{label}</text>')
    for count, y in ((most_up, 8), (-most_down, zero + most_down * scale)):
        if count:
            parts.append(f'<text x="{_MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{abs(count):,}</text>')
    what = f"{sum(bar.doings.saved for bar in bars):,} refusals spared, {sum(bar.doings.evicted for bar in bars):,} fixes left"
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{what}">{"".join(parts)}</svg>'


def _moment(at: float) -> str:
    return time.strftime("%d %B %Y, %H:%M", time.localtime(at))


def _text(text: str) -> str:
    return escape(printable(text))
