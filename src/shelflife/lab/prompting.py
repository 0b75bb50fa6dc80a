"""The messages that a planner sees: the same for a model and for a simulated planner."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, digest_of
from shelflife.client.prompts import MERGE_INSTRUCTION, amended_input, for_planner, memory_block
from shelflife.lab.apis import Api
from shelflife.lab.planners import Message
from shelflife.lab.scenarios import Episode
from shelflife.lab.spec import PLAIN_WORDING, Consume, Reads
from shelflife.lab.wordings import Wording, wordings

__all__ = [
    "Turn",
    "as_shown",
    "conversation",
    "digest_of_messages",
    "messages_for",
    "request_in",
    "system_prompt",
]


class Turn(NamedTuple):
    """What a planner replied, and what came of it."""

    reply: str
    status: int | None
    """None when there was no request in the reply."""

    body: str


def messages_for(
    api: Api,
    episode: Episode,
    consume: Consume,
    entries: Sequence[Entry],
    before: Sequence[Turn],
    wording: Wording | None = None,
) -> list[Message]:
    """The conversation of an episode up to the next reply, in the plain wording unless another is given."""
    wording = wording or wordings()[PLAIN_WORDING]
    task = _task(episode, consume, entries, wording)
    return conversation(system_prompt(api, consume, wording), task, before, wording)


def system_prompt(api: Api, consume: Consume, wording: Wording) -> str:
    """What a planner is told before any task. From Level 2 on, that suggestions are to be merged verbatim."""
    told = wording.system
    if consume is Consume.LEVEL_1:
        told = told.rpartition("\n")[0]
    return told.format(operation=api.operation, fields=api.fields, merge=MERGE_INSTRUCTION)


def conversation(system: str, task: str, before: Sequence[Turn], wording: Wording) -> list[Message]:
    """The messages of an episode, from the words of its records as well."""
    messages = [Message("system", system), Message("user", task)]
    for exchange in before:
        messages.append(Message("assistant", exchange.reply))
        if exchange.status is None:
            outcome = wording.no_request
        else:
            outcome = f"{wording.answered.format(status=exchange.status)}\n{exchange.body}"
        messages.append(Message("user", f"{outcome}\n\n{wording.again}"))
    return messages


def as_shown(answer: str, reads: Reads) -> str:
    """What a planner is shown of an answer."""
    return for_planner(answer) if reads == "needed" else answer


def _task(episode: Episode, consume: Consume, entries: Sequence[Entry], wording: Wording) -> str:
    plain = f"{wording.input}\n{msgspec.json.encode(episode.input).decode()}\n"
    match consume:
        case Consume.LEVEL_1 | Consume.LEVEL_2:
            listed = memory_block(entries, words=wording.memory)
            shown = "\n".join(part for part in (plain, listed) if part)
        case Consume.LEVEL_3:
            shown = amended_input(episode.input, entries, words=wording.memory) or plain
        case Consume.APPLY:
            shown = plain
    return f"{wording.task.format(task=episode.task)}\n\n{shown}"


def digest_of_messages(messages: Sequence[Message]) -> str:
    """Tells one conversation from another."""
    return digest_of([[message.role, message.content] for message in messages])


def request_in(reply: str) -> dict[str, Any] | None:
    """The request in a reply: its JSON object, also inside a fence or between words; None when there is none."""
    start, end = reply.find("{"), reply.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        found = msgspec.json.decode(reply[start : end + 1])
    except (msgspec.MsgspecError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
