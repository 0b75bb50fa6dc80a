"""What MCP carries of the contract, as a client sees it: results of tools, and questions that are URIs of a resource.

Nothing here imports an SDK: results are looked at by the names that their members have in all of them.
"""

import dataclasses
from typing import Any

import msgspec

from shelflife.client.asking import LARGEST_ANSWER, Question, Reply
from shelflife.client.memory import Memory
from shelflife.client.outcomes import Outcome, reply_in_meta, reply_in_text, reply_of, says_error
from shelflife.contract.envelopes import Envelope, QuestionUri
from shelflife.contract.positions import AT_HEADER

__all__ = ["answer_in", "read_result", "uri_of"]

_URL_ELICITATION_REQUIRED = -32042
"""The code of an error by which a server says that a human has to do something first."""


def uri_of(question: Question, root: str) -> str:
    """The URI of the resource that is the answer to a question."""
    path, _, query = question.url.removeprefix(root).partition("?")
    return QuestionUri(path, query, question.body, question.headers.get(AT_HEADER, "")).text


def answer_in(text: str) -> Reply | None:
    """The answer that is the content of the resource; None where that is too much. An error where it is none."""
    answer = text.encode()
    return reply_of(msgspec.json.decode(answer, type=Envelope)) if len(answer) <= LARGEST_ANSWER else None


def read_result(
    outcome: Any, memory: Memory, root: str, *, is_error: bool = False, is_only: bool = False
) -> Outcome:
    """What a result says in its metadata or, where that has got lost on the way, at the end of an error's text.

    Nowhere else: what a tool hands on may have been written by anybody. So may an error, once it is known that metadata gets through.
    """
    if isinstance(outcome, BaseException):
        return Outcome(outcome, None, is_error=_code_of(outcome) != _URL_ELICITATION_REQUIRED)
    is_error = is_error or says_error(outcome)
    reply = reply_in_meta(getattr(outcome, "meta", None), is_error=is_error)
    in_metadata = memory.heard_in_metadata
    if reply is not None:
        in_metadata.add(root)
    if not is_error:
        return Outcome(outcome, reply, is_only=is_only)
    shown = []
    for block in outcome.content:
        text, in_text = reply_in_text(getattr(block, "text", ""))
        if in_text is not None:
            block = block.model_copy(update={"text": text})
            reply = reply if root in in_metadata else in_text
        shown.append(block)
    if shown == outcome.content:
        return Outcome(outcome, reply, is_error, is_only=is_only)
    is_model = hasattr(outcome, "model_copy")
    without = (
        outcome.model_copy(update={"content": shown})
        if is_model
        else dataclasses.replace(outcome, content=shown)
    )
    return Outcome(without, reply, is_error, is_only=is_only)


def _code_of(error: BaseException) -> object:
    """The code of an error of the protocol: of `mcp` 2 its own, and of `mcp` 1 that of what it holds."""
    return getattr(error, "code", None) or getattr(getattr(error, "error", None), "code", None)
