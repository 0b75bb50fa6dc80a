"""The messages that a planner sees: the same for a model and for a simulated planner."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, digest_of
from shelflife.client.prompts import MERGE_INSTRUCTION, amended_input, memory_block
from shelflife.lab.apis import Api
from shelflife.lab.planners import Message
from shelflife.lab.scenarios import Episode
from shelflife.lab.spec import Consume

__all__ = ["Turn", "conversation", "digest_of_messages", "messages_for", "request_in", "system_prompt"]

INPUT = "Input:\n"
ANSWER = "The server answered "
NO_REQUEST = "There was no JSON object in your reply."


class Turn(NamedTuple):
    """What a planner replied, and what came of it."""

    reply: str
    status: int | None
    """None when there was no request in the reply."""

    body: str


def messages_for(
    api: Api, episode: Episode, consume: Consume, entries: Sequence[Entry], before: Sequence[Turn]
) -> list[Message]:
    """The conversation of an episode up to the next reply."""
    return conversation(system_prompt(api, consume), _task(episode, consume, entries), before)


def system_prompt(api: Api, consume: Consume) -> str:
    """What a planner is told before any task. From Level 2 on, that suggestions are to be merged verbatim."""
    base = (
        f"You make requests to an HTTP API. The operation is {api.operation}, with a JSON body of these fields: {api.fields}.\n"
        "Reply with the JSON body of the next request: one JSON object, and nothing else."
    )
    return base if consume is Consume.LEVEL_1 else f"{base}\n{MERGE_INSTRUCTION}"


def conversation(system: str, task: str, before: Sequence[Turn]) -> list[Message]:
    """The messages of an episode, from the words of its records as well."""
    messages = [Message("system", system), Message("user", task)]
    for exchange in before:
        messages.append(Message("assistant", exchange.reply))
        outcome = NO_REQUEST if exchange.status is None else f"{ANSWER}{exchange.status}:\n{exchange.body}"
        messages.append(Message("user", f"{outcome}\n\nReply with the JSON body of the next request."))
    return messages


def _task(episode: Episode, consume: Consume, entries: Sequence[Entry]) -> str:
    plain = f"{INPUT}{msgspec.json.encode(episode.input).decode()}\n"
    match consume:
        case Consume.LEVEL_1 | Consume.LEVEL_2:
            shown = "\n".join(part for part in (plain, memory_block(entries)) if part)
        case Consume.LEVEL_3:
            shown = amended_input(episode.input, entries) or plain
        case Consume.APPLY:
            shown = plain
    return f"Task: {episode.task}\n\n{shown}"


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
