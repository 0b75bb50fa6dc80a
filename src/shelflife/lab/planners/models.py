"""A model as a planner, through inspect-ai's providers: Anthropic, OpenAI, Gemini, DeepSeek, any OpenAI-compatible address.

    with ModelPlanner("openai/gpt-5-mini") as planner:
        planner.probe()
        planner.propose([Message("user", "…")])

inspect-ai takes seconds to import, so only making a planner imports it. Its clients belong to an event loop; all planners
share one that runs in a thread of its own, and may be used from any thread.
"""

import functools
import logging
import math
import os
import re
import sys
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from shelflife.lab.planners import Message, PlannerError, Proposal, Usage
from shelflife.lab.planners.model_failures import AskedModel, explained, is_unreachable, refuses, silence

__all__ = ["LONGEST_ANSWER_S", "ModelPlanner", "Probe", "Settings"]

LONGEST_ANSWER_S = 120
"""How long to wait for an answer, unless somebody says otherwise."""

_LONGEST_ANSWER_TOKENS = 4096
"""How many tokens a model may take for an answer, unless its name says otherwise."""

_log = logging.getLogger("shelflife.lab")

_ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_LONGEST_WAIT_S = 60.0
_CHARACTERS_PER_TOKEN = 4
_PROBE = (Message("user", "Answer with the word: ready"),)
_PROBE_TOKENS = 64


class Probe(msgspec.Struct, frozen=True):
    """What one tiny call has shown of a model."""

    requested: str
    served: str | None
    """The model that the vendor says it served."""

    usage: Usage


class Settings(msgspec.Struct, frozen=True):
    """What a model is asked with, beside the messages."""

    temperature: float | None
    seed: int | None
    max_tokens: int


class ModelPlanner:
    """A model as a planner.

    Tokens are those that the vendor bills: the prompt with what it read from or wrote to a cache, the completion with its
    reasoning. Where a server reports none they are estimated, and `Usage.source` says so.
    """

    kind: Literal["simulated", "model"] = "model"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = 0.0,
        seed: int | None = None,
        timeout_s: int = LONGEST_ANSWER_S,
        max_retries: int = 4,
        backoff_s: float = 3.0,
    ) -> None:
        """Name the model as inspect-ai does: `anthropic/…`, `openai/…`, `google/…`, `openai-api/<service>/<model>`.

        With `?max_tokens=256` behind that, an answer has no more. It is a part of the planner's name: with less it may answer otherwise.
        The key comes from the environment unless it is given. `temperature` and `seed` go to models that have them. Rate limits,
        time-outs and failures of the server are tried again `max_retries` times: after `backoff_s`, then twice as long each time,
        and never before the vendor's `Retry-After`.
        """
        self.name = model
        model, max_tokens = _model_in(model)
        self.probed: Probe | None = None
        """What `probe` has shown; None before."""
        self.settings = Settings(temperature, seed, max_tokens)
        """Without a temperature from the moment the vendor has refused one."""
        self._asked = AskedModel(
            model=model,
            base_url=base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            tries=max_retries + 1,
            max_tokens=max_tokens,
        )
        self._inspect = _inspect_ai()
        with ExitStack() as resources:
            self._portal = resources.enter_context(_shared_loop())
            config = self._inspect.GenerateConfig(
                seed=seed,
                max_tokens=max_tokens,
                attempt_timeout=timeout_s,
                max_retries=max_retries,
                cache_prompt=False,  # what a call costs must not depend on the calls before it
                reasoning_summary="none",  # else a model of OpenAI's is first asked, unrecorded, whether it gives one
                adaptive_connections=False,
            )
            try:
                self._model = _run(self._portal, self._made, config)
            except Exception as error:  # noqa: BLE001 - each provider has its own way of saying what it lacks
                raise PlannerError(explained(self._asked, error)) from None
            resources.callback(_run, self._portal, _close_client, self._model)
            _bound_retries(self._model, backoff_s)
            # `finalize` also runs before the program ends; after that the loop's thread is gone, and closing would hang.
            self._close = weakref.finalize(self, resources.pop_all().close)

    def propose(self, messages: Sequence[Message]) -> Proposal:
        """Ask the model; `PlannerError` when it cannot be reached after all retries.

        An answer that it withholds is empty, and was billed.
        """
        output = self._generated(messages)
        problem = silence(self._asked, output.completion, output.stop_reason)
        if problem is not None:
            _log.warning("%s", problem)
        text = output.completion if problem is None else ""
        return Proposal(text, _usage(output, messages), output.model or None)

    def probe(self) -> Probe:
        """Make one tiny call, to learn whether the model can be used and which one is served."""
        output = self._generated(_PROBE, max_tokens=_PROBE_TOKENS)
        self.probed = Probe(self.name, output.model or None, _usage(output, _PROBE))
        return self.probed

    def close(self) -> None:
        """Close the connections to the vendor. A closed planner cannot be asked any more."""
        self._close()

    def __enter__(self) -> "ModelPlanner":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def _made(self, config: Any) -> Any:
        hook = sys.excepthook
        try:
            return self._inspect.get_model(
                self._asked.model,
                config=config,
                base_url=self._asked.base_url,
                api_key=_key(self._asked),
                memoize=False,
            )
        finally:
            # inspect-ai puts its own hook in, for its command line.
            sys.excepthook = hook

    def _generated(self, messages: Sequence[Message], **changes: Any) -> Any:
        """The model's output."""
        if not self._close.alive:
            raise PlannerError(f"the planner for {self.name} is closed")
        config = self._inspect.GenerateConfig(temperature=self.settings.temperature, **changes)
        spoken = {
            "system": self._inspect.ChatMessageSystem,
            "user": self._inspect.ChatMessageUser,
            "assistant": self._inspect.ChatMessageAssistant,
        }
        conversation = [spoken[message.role](content=message.content) for message in messages]
        try:
            asking = functools.partial(self._model.generate, conversation, config=config, cache=False)
            return _run(self._portal, asking)
        except Exception as error:  # noqa: BLE001 - each SDK raises its own, and none may reach people as a traceback
            if self.settings.temperature is None or not refuses(error, "temperature"):
                raise PlannerError(explained(self._asked, error)) from None
        self.settings = msgspec.structs.replace(self.settings, temperature=None)
        return self._generated(messages, **changes)


def _model_in(name: str) -> tuple[str, int]:
    """The model that a planner's name has in it, and how many tokens that may take for an answer."""
    model, mark, setting = name.partition("?")
    if not mark:
        return model, _LONGEST_ANSWER_TOKENS
    option, _, value = setting.partition("=")
    if option != "max_tokens" or not re.fullmatch("[1-9][0-9]{0,5}", value):
        raise PlannerError(f"a model's name may end in ?max_tokens=256, and not in ?{setting}")
    return model, int(value)


def _run(portal: Any, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Run on the shared loop, and end it there when it is interrupted here."""
    future = portal.start_task_soon(function, *arguments)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _close_client(model: Any) -> None:
    with suppress(Exception):
        await model.api.aclose()


def _inspect_ai() -> Any:
    try:
        import inspect_ai.model
    except ImportError as error:
        package = (error.name or "inspect_ai").partition(".")[0]
        raise PlannerError(
            "a model as a planner needs more than is installed: pip install 'shelflife[models]'"
            f" ({package} is missing)"
        ) from None
    for name in ("inspect_ai", "google_genai"):
        if not logging.getLogger(name).handlers:
            # Without any handler Python would print their warnings among the lab's own lines.
            logging.getLogger(name).addHandler(logging.NullHandler())
    return inspect_ai.model


@functools.cache
def _shared_loop() -> Any:
    """The one event loop; its thread runs while there are planners."""
    from anyio.from_thread import BlockingPortalProvider

    return BlockingPortalProvider()


def _key(asked: AskedModel) -> str | None:
    """The key that was given; None for the environment's.

    A compatible server on this machine mostly wants none, so any will do.
    """
    provider, _, rest = asked.model.partition("/")
    service = rest.partition("/")[0].upper().replace("-", "_")
    if asked.api_key or provider != "openai-api" or os.environ.get(f"{service}_API_KEY"):
        return asked.api_key
    base_url = asked.base_url or os.environ.get(f"{service}_BASE_URL") or ""
    return "none" if urlsplit(base_url).hostname in _ON_THIS_MACHINE else None


def _bound_retries(model: Any, backoff_s: float) -> None:
    """Make inspect-ai the only one that retries, as patiently as the vendor asks, and not where patience is no use."""
    import tenacity

    api = model.api
    is_retried = model.should_retry
    growing = tenacity.wait_exponential_jitter(initial=backoff_s, max=_LONGEST_WAIT_S, jitter=backoff_s)

    def asked_wait_s(error: Any) -> float:
        return getattr(api.should_retry(error), "retry_after", None) or 0.0

    def wait_s(state: Any) -> float:
        return max(growing(state), asked_wait_s(state.outcome.exception()))

    def should_retry(error: BaseException) -> bool:
        if is_unreachable(error) or not is_retried(error):
            return False
        return asked_wait_s(error) <= _LONGEST_WAIT_S

    model.should_retry = should_retry
    api.retry_wait = lambda: wait_s
    if hasattr(getattr(api, "client", None), "max_retries"):
        api.client.max_retries = 0


def _usage(output: Any, messages: Sequence[Message]) -> Usage:
    """The billed tokens. inspect-ai counts a cache's apart from the prompt, and reasoning within the completion."""
    billed = output.usage
    cached = (billed.input_tokens_cache_read or 0, billed.input_tokens_cache_write or 0) if billed else ()
    prompt = billed.input_tokens + sum(cached) if billed else 0
    if prompt:
        return Usage(prompt, billed.output_tokens, "vendor")
    written = sum(len(message.content) for message in messages)
    return Usage(_estimated(written), _estimated(len(output.completion)), "estimated")


def _estimated(characters: int) -> int:
    return math.ceil(characters / _CHARACTERS_PER_TOKEN)
