"""What a memory must come to on a stream of releases, worked out from the history and the order of the rows alone.

Nothing of the package is used: not its server, not its memory, not its scores.
"""

import functools
import gzip
import json
from typing import NamedTuple


class Predicted(NamedTuple):
    retries: int
    stale_sent: int
    stale_carried_out: int
    evictions: int


def demands_of_zones(tables, key):
    """By field, what a meeting in this zone must say, and the cell that says so."""
    zone, alias = tables["zones"].get(key), tables["zone_aliases"].get(key)
    found = {}
    if zone is None:
        found["tentative"] = (True, ("zones", key, None))
    for field in ("utc_offset", "dst_rule"):
        if field in (zone or {}):
            found[field] = (zone[field], ("zones", key, field))
    if alias is not None:
        found["zone"] = (alias["zone"], ("zone_aliases", key, "zone"))
    return found


def demands_of_banks(tables, key):
    """The same of a payout to this bank."""
    bank = tables["banks"].get(key)
    if bank is None:
        return {"on_hold": (True, ("banks", key, None))}
    return {field: (bank[field], ("banks", key, field)) for field in ("bic", "check_method") if field in bank}


DEMANDS = {"zones": demands_of_zones, "banks": demands_of_banks}


class Memory:
    """What is held for each row: by field the values that were learned, each with the cell that it rests on."""

    def __init__(self, forgets, takes_last):
        self.forgets = forgets
        self.takes_last = takes_last
        self.held = {}
        self.evictions = 0

    def values(self, key):
        taken = -1 if self.takes_last else 0
        return {field: learned[taken][0] for field, learned in self.held.get(key, {}).items()}

    def hear(self, changes):
        """Of the releases since the last reply: which cells of which rows are other than before."""
        for key in list(self.held) if changes else ():
            for field, learned in list(self.held[key].items()):
                if any(self._goes(cell, changes) for _, cell in learned):
                    self.evictions += len(learned)
                    del self.held[key][field]

    def _goes(self, cell, changes):
        table, key, column = cell
        changed = changes.get((table, key), set())
        match self.forgets:
            case "table":
                return bool(changes)
            case "row":
                return bool(changed)
            case "cell":
                return None in changed or (column is not None and column in changed)
        return False

    def learn(self, key, lessons):
        if self.forgets == "everything":
            return
        for field, lesson in lessons.items():
            before = self.held.setdefault(key, {}).get(field, [])
            if self.forgets == "nothing":
                self.held[key][field] = [one for one in before if one[0] != lesson[0]] + [lesson]
            else:
                self.held[key][field] = [lesson]


def predicted(
    source, history, order, requests, *, forgets, takes_last=False, first=None, last=None, is_frozen=False
):
    """What a memory comes to that forgets everything, nothing, the table, the row or the cell."""
    releases = _releases(history)
    versions = [release["version"] for release in releases]
    begin, end = versions.index(first or versions[0]), versions.index(last or versions[-1])
    tables = {}
    for release in releases[: begin + 1]:
        _apply(release, tables)
    memory, news = Memory(forgets, takes_last), {}
    retries = sent = carried_out = 0
    for index, key in enumerate(order):
        if index and index % requests == 0 and not is_frozen:
            for cell, columns in _apply(releases[begin + index // requests], tables).items():
                news.setdefault(cell, set()).update(columns)
        wanted = DEMANDS[source](tables, key)
        held = memory.values(key)
        stale = {field for field, value in held.items() if field not in wanted or wanted[field][0] != value}
        sent += bool(stale)
        carried_out += bool(stale - wanted.keys())
        lessons = {field: one for field, one in wanted.items() if held.get(field) != one[0]}
        memory.hear(news)
        news = {}
        if lessons:
            retries += 1
            memory.learn(key, lessons)
    assert begin + (len(order) - 1) // requests == end
    return Predicted(retries, sent, carried_out, memory.evictions)


@functools.cache
def _releases(history):
    return [json.loads(line) for line in gzip.decompress(history.read_bytes()).splitlines()]


def _apply(release, tables):
    """Put a release into effect; by row the columns that are other than before, and None for its coming or going."""
    changes = {}
    for name, change in release["tables"].items():
        rows = tables.setdefault(name, {})
        changes[name, ""] = set()  # of the table itself: it has moved
        for key, row in change.get("set", {}).items():
            before = rows.get(key)
            columns = {
                column for column in {*row, *(before or {})} if (before or {}).get(column) != row.get(column)
            }
            changes[name, key] = columns if before is not None else {None, *columns}
            rows[key] = row
        for key in change.get("remove", ()):
            changes[name, key] = {None}
            del rows[key]
    return changes
