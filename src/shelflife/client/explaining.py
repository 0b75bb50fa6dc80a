"""Why what is remembered is used for a request, or is not. What decides about a recall says so: nothing is decided here."""

from collections.abc import Iterator
from functools import partial

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Root
from shelflife.client.guard import Guard, amend
from shelflife.client.shelf import Revalidate, Shelf, Usable
from shelflife.client.strategies import EVERYTHING
from shelflife.contract.values import is_carried

__all__ = ["Explained", "explained"]


class Explained(msgspec.Struct, frozen=True):
    """One entry, and what becomes of it for a request."""

    entry: Entry
    why_not: str | None
    """What keeps it out, as the rest of a sentence that begins with the entry; None when it is used."""


def explained(shelf: Shelf, root: Root, operation: str, request: Fields, guard: Guard) -> Iterator[Explained]:
    """All that is held of a server, with what would become of each entry if the request was made now. It only looks."""
    amended = amend(request, partial(shelf.usable, root, operation, only_to_look=True), guard)
    applied = {done.entry.id for done in amended.applied}
    refused = {done.entry.id: done.why for done in amended.refused}
    for entry in shelf.store.tagged(root, *EVERYTHING):
        why_not = None
        if entry.id in refused:
            why_not = f"the guard refuses it: {refused[entry.id]}"
        elif entry.id not in applied:
            why_not = _obstacle(shelf, entry, operation, request, amended.request)
        yield Explained(entry, why_not)


def _obstacle(shelf: Shelf, entry: Entry, operation: str, request: Fields, amended: Fields) -> str:
    """Why a recall does not find an entry."""
    if entry.operation != operation:
        return f"it is for another operation, {entry.operation}"
    if not is_carried(operation, request):
        return "the request has something in it that JSON cannot carry, or is nested too deeply"
    mismatch = entry.mismatch(request)
    if mismatch is not None:
        return mismatch
    standing = shelf.standing_of_entry(entry)
    if isinstance(standing, Usable):
        return f"another fix has made another request of it: {entry.mismatch(amended)}"
    if isinstance(standing, Revalidate):
        return f"the server has to be asked about it first: {standing.why}"
    return standing.why
