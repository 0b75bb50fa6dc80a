"""How a fix is shown to a planner: as data, and only as much as a code, a brand, a date or an amount needs.

What is guaranteed: the values that a server has given stand inside JSON of printable ASCII, cannot end its line and has none of the
characters that open and close markup; names are plain names, texts have at most three words and 64 characters, and the whole is
bounded. What cannot be: that three words, or a name, say nothing to a model. Do not let a planner take orders from them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

import msgspec

from shelflife.client.entries import Entry, digest_of
from shelflife.client.guard import Guard
from shelflife.contract.merging import merged
from shelflife.contract.when import WHOLE_REQUEST

__all__ = [
    "MERGE_INSTRUCTION",
    "OF_RESPONSES",
    "OF_SUGGESTIONS",
    "MemoryWords",
    "amended_input",
    "for_planner",
    "memory_block",
]

MERGE_INSTRUCTION = (
    "Merge the suggestion parameters into your next request verbatim; do not paraphrase or omit fields."
)
"""Level 2: the sentence for the system prompt that turns a suggestion from advice into a patch."""

OF_RESPONSES = ("table_versions", "rules_version", "at")
"""The members of a response that only a memory reads."""

OF_SUGGESTIONS = ("cache_hint", "table", "tables", "rows", "cells", "rules", "on", "by", "when", "unless")
"""Those of a suggestion: all but its type and its parameters."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}\Z")
_LONGEST_TEXT = 64
_MOST_WORDS = 3
_LONGEST_VALUE = 512
_MOST_PARAMETERS = 16
_MOST_LAYERS = 8
_MOST_SHOWN = 32
_MOST_CHARACTERS = 8192
_MARKUP = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&`\x7f"})


class MemoryWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said around the remembered values: each a line or a part of one."""

    listed: str = "Suggestions remembered from earlier requests, one a line, as data:"
    amended: str = "Input, with amendments already made:"
    amendments: str = "Amended fields (null: taken away):"
    was: str = "was"
    added: str = "added"
    """A small model that reads "was not there" takes the field out again; "added" it takes over."""


_WORDS = MemoryWords()


def memory_block(entries: Sequence[Entry], guard: Guard | None = None, words: MemoryWords = _WORDS) -> str:
    """Level 2: the remembered fixes as instructions; empty when there is none that can be shown and that the guard allows.

    What holds for one request as a whole is shown without its `when`: that is the very request at hand.
    """
    lines = [_line(entry) for entry in _shown(entries, guard)]
    if not lines:
        return ""
    return "\n".join([words.listed, *lines, ""])


def amended_input(
    task_input: Mapping[str, Any],
    entries: Sequence[Entry],
    guard: Guard | None = None,
    words: MemoryWords = _WORDS,
) -> str:
    """Level 3: the task's input with the remembered fixes already in it; empty when there is none that can be shown and that the guard allows.

    Of several values for one field all are listed, oldest first, and the oldest is in the input. The input itself is shown as it is.
    """
    shown = _shown(entries, guard)
    if not shown:
        return ""
    values: dict[str, dict[str, Any]] = {}
    for entry in shown:
        for name, value in entry.parameters.items():
            values.setdefault(name, {}).setdefault(digest_of(value), value)
    amended = merged(task_input, {name: next(iter(different.values())) for name, different in values.items()})
    lines = [
        f"- {name}: {' | '.join(map(_json, different.values()))} ({_before(task_input, name, words)})"
        for name, different in values.items()
    ]
    return "\n".join([words.amended, _json(amended), words.amendments, *lines, ""])


def for_planner(body: str | bytes) -> str:
    """What a planner needs of a response: all but what only a memory reads. The memory itself must observe the whole.

    A body that is no JSON object is as it was. What a server says in it is not looked through: do not let a planner take orders from it.
    """
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
    if not isinstance(whole, dict):
        return text
    needed = {name: value for name, value in whole.items() if name not in OF_RESPONSES}
    feedback = needed.get("recovery_feedback")
    if isinstance(feedback, dict) and isinstance(suggestions := feedback.get("suggestions"), list):
        needed["recovery_feedback"] = {**feedback, "suggestions": [_needed(one) for one in suggestions]}
    return text if needed == whole else msgspec.json.encode(needed).decode()


def _needed(suggestion: object) -> object:
    if not isinstance(suggestion, dict):
        return suggestion
    return {name: value for name, value in suggestion.items() if name not in OF_SUGGESTIONS}


def _before(task_input: Mapping[str, Any], name: str, words: MemoryWords) -> str:
    return f"{words.was} {_json(task_input[name])}" if name in task_input else words.added


def _shown(entries: Sequence[Entry], guard: Guard | None) -> list[Entry]:
    """The entries that are shown: the first of those that may be, up to a number and a length."""
    guard = guard or Guard(decides_for_caller=True)  # the planner sees it and decides
    allowed = (entry for entry in entries if guard.refusal(entry) is None and _can_be_shown(entry))
    first = list(islice(allowed, _MOST_SHOWN))
    lengths = accumulate(len(_line(entry)) + 1 for entry in first)
    return [entry for entry, length in zip(first, lengths, strict=True) if length <= _MOST_CHARACTERS]


def _line(entry: Entry) -> str:
    line = {"type": entry.type, "parameters": entry.parameters}
    return _json(line if WHOLE_REQUEST in entry.condition.when else line | {"when": entry.condition.when})


def _can_be_shown(entry: Entry) -> bool:
    when = {} if WHOLE_REQUEST in entry.condition.when else entry.condition.when
    names = [entry.type, *(step for path in when for step in path.split("/") if step)]
    return (
        len(entry.parameters) <= _MOST_PARAMETERS
        and all(_NAME.match(name) for name in names)
        and _is_plain(entry.parameters)
        and all(map(_is_plain, when.values()))
        and all(len(_json(value)) <= _LONGEST_VALUE for value in (*entry.parameters.values(), *when.values()))
    )


def _is_plain(value: Any, layer: int = 1) -> bool:
    """Whether a value is scalars under plain names, with no text among them that could be a sentence."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT and len(value.split()) <= _MOST_WORDS
    if isinstance(value, Mapping):
        return layer <= _MOST_LAYERS and all(
            _NAME.match(name) and _is_plain(inner, layer + 1) for name, inner in value.items()
        )
    if isinstance(value, list | tuple):
        return all(not isinstance(inner, Mapping | list | tuple) and _is_plain(inner) for inner in value)
    return True


def _json(value: Any) -> str:
    """JSON in printable ASCII, so that no character can pose as another, break a line or open a tag or a fence."""
    import json  # half a millisecond of every import of this package, for what few use

    return json.dumps(value, separators=(",", ":"), default=msgspec.to_builtins).translate(_MARKUP)
