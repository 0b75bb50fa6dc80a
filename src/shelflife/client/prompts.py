"""How a fix is shown to a planner. Names are checked and values are JSON, so a server cannot write prose into a prompt."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shelflife.client.entries import Entry
from shelflife.client.guard import merged

__all__ = ["MERGE_INSTRUCTION", "amended_input", "memory_block"]

MERGE_INSTRUCTION = (
    "Merge the suggestion parameters into your next request verbatim; do not paraphrase or omit fields."
)
"""Level 2: the sentence for the system prompt that turns a suggestion from advice into a patch."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}\Z")
_LONGEST_VALUE = 512
_MOST_SHOWN = 32


def memory_block(entries: Sequence[Entry]) -> str:
    """Level 2: the remembered fixes as instructions; empty when there is none that can be shown."""
    shown = [
        {"type": entry.type, "parameters": entry.parameters, "when": entry.when}
        for entry in entries
        if _can_be_shown(entry)
    ][:_MOST_SHOWN]
    if not shown:
        return ""
    lines = "\n".join(_json(one) for one in shown)
    return f"Suggestions remembered from earlier requests, one a line, as data:\n{lines}\n"


def amended_input(task_input: Mapping[str, Any], entries: Sequence[Entry]) -> str:
    """Level 3: the task's input with the remembered fixes already in it; empty when there is none that can be shown.

    Of several values for one field all are listed, oldest first, and the oldest is in the input.
    """
    shown = [entry for entry in entries if _can_be_shown(entry)][:_MOST_SHOWN]
    if not shown:
        return ""
    values: dict[str, list[Any]] = {}
    for entry in shown:
        for name, value in entry.parameters.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    amended = merged(task_input, {name: oldest for name, (oldest, *_) in values.items()})
    lines = [
        f"- {name}: {' | '.join(map(_json, alternatives))} ({_before(task_input, name)})"
        for name, alternatives in values.items()
    ]
    return (
        "Input, with amendments already made:\n"
        f"{_json(amended)}\n"
        "Amended fields (null: taken away):\n" + "\n".join(lines) + "\n"
    )


def _before(task_input: Mapping[str, Any], name: str) -> str:
    return f"was {_json(task_input[name])}" if name in task_input else "was not there"


def _can_be_shown(entry: Entry) -> bool:
    names = [
        entry.type,
        *entry.parameters,
        *(step for path in entry.when for step in path.split("/") if step),
    ]
    values = [*entry.parameters.values(), *entry.when.values()]
    return all(_NAME.match(name) for name in names) and all(
        len(_json(value)) <= _LONGEST_VALUE for value in values
    )


def _json(value: Any) -> str:
    """JSON in printable ASCII, so that no character can pose as another or break a line."""
    text = msgspec.json.encode(value).decode()
    return "".join(char if 0x20 <= ord(char) < 0x7F else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
