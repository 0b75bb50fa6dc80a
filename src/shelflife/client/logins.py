"""Says once of each server that it answers no questions of a memory without a login: else whole tables go, and nobody knows why."""

import logging

__all__ = ["note_status"]

_log = logging.getLogger("shelflife.memory")

_WANTS_A_LOGIN = (401, 407)
_MOST_TOLD = 1_000
"""Replies may send an agent to ever new servers."""

_told: set[str] = set()


def note_status(url: str, status: int) -> None:
    """A server has answered a question. That it does not tell everybody everything is no fault; that it does not know us is."""
    if status not in _WANTS_A_LOGIN:
        return
    root = url.partition("/contract/")[0]
    if root not in _told and len(_told) < _MOST_TOLD:
        _told.add(root)
        _log.warning(
            "%s answers the memory's questions with %d, so what has moved there is dropped by whole tables:"
            " give `ask`, which asks with your login",
            root,
            status,
        )
