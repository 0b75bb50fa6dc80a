"""What a request that carries remembered values asks of the server first."""

from collections.abc import Iterable, Mapping
from typing import Any

from shelflife.client.entries import Entry
from shelflife.contract.preconditions import Precondition

__all__ = ["carried_by", "precondition_for"]


def carried_by(request: Mapping[str, Any], entries: Iterable[Entry]) -> list[Entry]:
    """The entries whose fix a request has in it."""
    return [
        entry
        for entry in entries
        if all(_has(request, name, value) for name, value in entry.parameters.items())
    ]


def precondition_for(
    epoch: str, entries: Iterable[Entry], before: Mapping[str, Any], *, brief: bool = False
) -> Precondition:
    """That nothing these entries rest on has moved since an epoch; `before` is the request without them.

    Where an entry does not say which rows it rests on, it may be any of its tables. The brief form says that nothing at all has moved: a fraction of the bytes, at the price
    of a round trip when something else has. It is for a first try: a server that moves all the time would refuse it for ever.
    """
    entries = list(entries)
    fields = (name for entry in entries for name in entry.parameters)
    was = {name: before.get(name) for name in fields}
    if brief:
        return Precondition(epoch=epoch, was=was)
    rows = (row for entry in entries for row in (entry.tables if entry.rows is None else entry.rows))
    rules = (rule for entry in entries for rule in entry.rules or ())
    return Precondition(
        epoch=epoch,
        rows=tuple(dict.fromkeys(rows)),
        rules=tuple(dict.fromkeys(rules)),
        was=was,
    )


def _has(request: Mapping[str, Any], name: str, value: Any) -> bool:
    if value is None:
        return request.get(name) is None
    return name in request and bool(request[name] == value)
