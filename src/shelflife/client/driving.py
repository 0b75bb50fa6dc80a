"""Carrying on what a memory decides: it says what to ask, and whoever drives it does the waiting, blocking or async."""

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import NamedTuple, TypeVar

from shelflife.client.questions import AsyncFetcher, Fetched, Fetcher

__all__ = ["AsyncPoster", "Poster", "Question", "Steps", "as_questions", "driven", "driven_async"]

Outcome = TypeVar("Outcome")

Poster = Callable[[str, bytes], Fetched | None]
"""Sends JSON to a URL with POST; None when that fails. Must not follow a redirect to another origin."""

AsyncPoster = Callable[[str, bytes], Awaitable[Fetched | None]]


class Question(NamedTuple):
    """Something to ask a server: with GET, or with POST when there is a body."""

    url: str
    body: bytes | None = None


Steps = Generator[Question, Fetched | None, Outcome]


def driven(
    steps: Steps[Outcome], fetch: Fetcher | AsyncFetcher | None, post: Poster | None = None
) -> Outcome:
    """Carry on to the end, asking with blocking calls."""
    with closing(steps):
        try:
            question = next(steps)
            while True:
                answer = _asked(question, fetch, post)
                if inspect.isawaitable(answer):
                    if inspect.iscoroutine(answer):
                        answer.close()
                    raise TypeError(
                        "the fetcher is async: call observe_async, refresh_async or check_async, or give another one"
                    )
                question = steps.send(answer)
        except StopIteration as outcome:
            ended: Outcome = outcome.value
            return ended


async def driven_async(
    steps: Steps[Outcome],
    fetch: Fetcher | AsyncFetcher | None,
    post: Poster | AsyncPoster | None = None,
) -> Outcome:
    """The same, awaiting what can be awaited."""
    with closing(steps):
        try:
            question = next(steps)
            while True:
                answer = _asked(question, fetch, post)
                question = steps.send(await answer if inspect.isawaitable(answer) else answer)
        except StopIteration as outcome:
            ended: Outcome = outcome.value
            return ended


def as_questions(steps: Generator[str, Fetched | None, Outcome]) -> Steps[Outcome]:
    """Steps that only ever get URLs, as steps that ask."""
    with closing(steps):
        try:
            url = next(steps)
            while True:
                url = steps.send((yield Question(url)))
        except StopIteration as outcome:
            ended: Outcome = outcome.value
            return ended


def _asked(
    question: Question, fetch: Fetcher | AsyncFetcher | None, post: Poster | AsyncPoster | None
) -> Fetched | Awaitable[Fetched | None] | None:
    if question.body is not None:
        return post(question.url, question.body) if post else None
    return fetch(question.url) if fetch else None
