"""What goes between a memory and a server, and the two ways of waiting for it: blocking and async."""

import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import closing, suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from shelflife.client.entries import Root
from shelflife.client.logins import note_status

__all__ = [
    "LARGEST_ANSWER",
    "LEAST_FAILURE",
    "Advanced",
    "Answering",
    "AnyAnswering",
    "AnyAsk",
    "Ask",
    "AsyncAsk",
    "Exchange",
    "Fields",
    "Patience",
    "Question",
    "Reply",
    "Steps",
    "Watch",
    "advanced",
    "advanced_in_thread",
    "awaited",
    "driven",
    "driven_async",
    "watched",
]

_log = logging.getLogger("shelflife.memory")

LARGEST_ANSWER = 8 * 1024 * 1024
"""How many bytes of an answer to a question are taken; one that is longer is none."""

LEAST_FAILURE = 400
"""Replies of this status or more say that a request was not carried out."""

_LONGEST_ASKING_S = 5.0
"""So long may all the questions of one step take together."""

Step = TypeVar("Step")
Result = TypeVar("Result")
Given = ParamSpec("Given")


class Question(NamedTuple):
    """Something that a memory asks a server. Its URL is always on the root; a body is JSON."""

    url: str
    """Where it is put."""

    body: bytes | None = None
    """What is sent, where it is a POST."""

    headers: Mapping[str, str] = {}
    """To be sent with it."""

    within_s: float = _LONGEST_ASKING_S
    """How long the answer is waited for: what is left of the time for all questions of one step."""

    @property
    def method(self) -> str:
        """With a body it is POST."""
        return "GET" if self.body is None else "POST"


class Reply(msgspec.Struct, frozen=True):
    """What a server answers, to a question or to a request: the status, the body, decompressed, and the headers.

    The headers of the answer to a question are not looked at.
    """

    status: int
    """The HTTP status."""

    body: bytes
    """Text is taken too, and is UTF-8 from then on."""

    headers: Mapping[str, str] = {}
    """By lower-case name, however they were written."""

    whole: bool = True
    """Whether the body could be read to its end."""

    def __post_init__(self) -> None:
        given: object = self.body  # whatever a program without types hands in
        if not isinstance(given, bytes | bytearray | str):
            raise TypeError(f"the body of a reply is bytes or text, and not {type(given).__name__}")
        body = given.encode(errors="replace") if isinstance(given, str) else bytes(given)
        msgspec.structs.force_setattr(self, "body", body)
        lower = {name.lower(): value for name, value in self.headers.items()}
        msgspec.structs.force_setattr(self, "headers", lower)


Fields = Mapping[str, Any]
"""The fields of a request."""


class Exchange(NamedTuple):
    """A request that was made and the reply that came back."""

    root: Root
    """Where the contract lives: `scheme://host:port` of the server."""

    operation: str
    """E.g. `POST /subscriptions`."""

    request: Fields
    """The fields of the request."""

    reply: Reply
    """What the server answered."""

    at: str | None = None
    """What the request had in `Contract-At`, if it had that."""

    conditional: bool = False
    """Whether the request had a precondition."""

    path: str | None = None
    """That of the request, where it is left to the reply to tell where on its server the contract lives. Else `root` is that."""

    @classmethod
    def told(cls, root: Root, operation: str, request: Fields, body: bytes) -> "Exchange":
        """What a server has answered when asked, as though it were the reply to a request."""
        return cls(root, operation, request, Reply(200, body, {"content-type": "application/json"}))


Ask = Callable[[Question], Reply | None]
"""Answers a question; None when that fails, and whatever it raises is logged and counts as None. Must not follow a redirect to another
origin."""

AsyncAsk = Callable[[Question], Awaitable[Reply | None]]
"""An `Ask` that is awaited, for the verbs that end in `_async`."""

AnyAsk = Ask | AsyncAsk

Answering = Callable[[Step], Reply | None]
"""Answers whatever comes up: a question, or a request that is to be sent."""

AnyAnswering = Callable[[Step], Reply | None] | Callable[[Step], Awaitable[Reply | None]]

Steps = Generator[Question, Reply | None, Result]
"""What is done about something, with questions in between."""


Watch = Callable[[Question], Steps[Reply | None]]
"""Asks a question on somebody's behalf, once, and hands on what was answered."""


def watched(steps_of: Callable[Given, Steps[Result]], watch: Watch) -> Callable[Given, Steps[Result]]:
    """The same steps, whose questions are asked by `watch`."""

    def watched_steps(*given: Given.args, **named: Given.kwargs) -> Steps[Result]:
        steps = steps_of(*given, **named)
        go_on: Callable[[Any], Question] = steps.send
        value: object = None
        with closing(steps):
            while True:
                try:
                    question = go_on(value)
                except StopIteration as end:
                    outcome: Result = end.value
                    return outcome
                try:
                    go_on, value = steps.send, (yield from watch(question))
                except Exception as error:  # noqa: BLE001 - the steps decide what becomes of it
                    go_on, value = steps.throw, error

    return watched_steps


class Patience:
    """How long the questions of one step may take, all together: however many they are, and however slowly a server answers.

    What else the step waits for is its caller's, and does not count.
    """

    def __init__(self) -> None:
        self.left_s = _LONGEST_ASKING_S
        self._begun_at = 0.0

    def __bool__(self) -> bool:
        """Whether any is left."""
        return self.left_s > 0

    def __enter__(self) -> float:
        """While a server is asked. Gives the moment of the monotonic clock at which it is given up."""
        self._begun_at = time.monotonic()
        return self._begun_at + self.left_s

    def __exit__(self, *_: object) -> None:
        self.left_s -= time.monotonic() - self._begun_at
        if self.left_s <= 0:
            _log.warning("a server is given up that has not answered within %g seconds", _LONGEST_ASKING_S)


def driven(steps: Generator[Step, Reply | None, Result], answer: AnyAnswering[Step] | None) -> Result:
    """Carry on to the end with blocking calls; without anybody to answer, every question is without an answer."""

    first = advanced(steps.send, None)
    if first.is_over:  # mostly there is nothing to ask
        at_end: Result = first.value
        return at_end
    is_async = False

    def at_once(step: Step) -> Reply | None:
        nonlocal is_async
        reply = answer(step) if answer else None
        if reply is None or isinstance(reply, Reply) or not inspect.isawaitable(reply):
            return reply
        is_async = True
        if inspect.iscoroutine(reply):
            reply.close()
        return None

    try:
        # nothing there waits, so its first step is the last
        driven_async(steps, at_once, first=first).send(None)
    except StopIteration as end:
        if is_async:
            raise TypeError("what answers is async: await the verb whose name ends in _async") from None
        outcome: Result = end.value
        return outcome
    raise AssertionError("a blocking call does not wait")


async def driven_async(
    steps: Generator[Step, Reply | None, Result],
    answer: AnyAnswering[Step] | None,
    *,
    is_remote: bool = False,
    first: "Advanced | None" = None,
) -> Result:
    """The same, awaiting what can be awaited. A request that fails is raised in the steps: they decide what becomes of it.

    Where the store is remote, the steps run in threads: else the event loop would wait for it. `first` is how far they have come already.
    """
    patience = Patience()
    go_on: Callable[[Any], Step] = steps.send
    value: object = None
    try:
        while True:
            now, first = first, None
            if now is None:
                now = await advanced_in_thread(go_on, value) if is_remote else advanced(go_on, value)
            if now.is_over:
                outcome: Result = now.value
                return outcome
            try:
                go_on, value = steps.send, await _reply_to(now.value, answer, patience)
            except Exception as error:  # noqa: BLE001
                go_on, value = steps.throw, error
    finally:
        steps.close()


class Advanced(msgspec.Struct, frozen=True):
    """How far steps have come."""

    is_over: bool
    value: Any
    """The next step, or what they have come to."""


def advanced(go_on: Callable[[Any], Any], value: Any) -> Advanced:
    """Let steps go on."""
    try:
        return Advanced(False, go_on(value))
    except StopIteration as end:
        return Advanced(True, end.value)


async def advanced_in_thread(go_on: Callable[[Any], Any], value: Any) -> Advanced:
    """The same without keeping the event loop waiting for a store. Where there is none of asyncio's, that cannot be helped.

    Two race here: the thread, and whoever cancels this. The steps are the thread's until it is done, which takes no longer than the
    store may take: only then is it cancelled.
    """
    import asyncio  # whoever has a loop of it has imported it, and for the others that would be half of the import of this package

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return advanced(go_on, value)
    going = asyncio.ensure_future(asyncio.to_thread(advanced, go_on, value))
    try:
        return await asyncio.shield(going)
    except asyncio.CancelledError:
        while not going.done():
            with suppress(asyncio.CancelledError):  # some libraries cancel again and again
                await asyncio.wait({going})
        going.exception()  # which nobody else asks for
        raise


async def _reply_to(step: Step, answer: AnyAnswering[Step] | None, patience: Patience) -> Reply | None:
    if answer is None:
        return None
    if not isinstance(step, Question):
        return _checked(await awaited(answer(step)))
    if not patience:
        return None
    try:
        with patience:
            asked: Any = Question(step.url, step.body, step.headers, patience.left_s)
            reply = answer(asked)
            told = reply if type(reply) is Reply else _checked(await _within(asked.within_s, reply))
        if told is not None:
            note_status(step.url, told.status)
        return told
    except Exception:  # noqa: BLE001 - whatever keeps it from being answered, the agent's request was made
        _log.warning("%s was asked, and whoever answers has failed", step.url, exc_info=True)
        return None


def _checked(reply: Any) -> Reply | None:
    if reply is None or isinstance(reply, Reply):
        return reply
    raise TypeError(
        f"what answers returns Reply(status, body, headers), or None, and not {type(reply).__name__}"
    )


async def _within(longest_s: float, reply: Any) -> Any:
    """What is awaited, if it comes in time. Where there is no event loop of asyncio's, whoever answers heeds the time alone."""
    asyncio: Any = sys.modules.get("asyncio")  # as above
    try:
        is_in_a_task = asyncio is not None and asyncio.current_task() is not None
    except RuntimeError:
        is_in_a_task = False
    if not is_in_a_task:
        return await awaited(reply)
    async with asyncio.timeout(longest_s):
        return await awaited(reply)


async def awaited(outcome: Any) -> Any:
    """What something comes to that may have to be awaited."""
    if outcome is None or type(outcome) is Reply:
        return outcome
    return await outcome if inspect.isawaitable(outcome) else outcome
