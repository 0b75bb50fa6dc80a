"""A request on its way through a memory, without I/O: what is to be sent, what the reply teaches, and whether it is sent again.

Every adapter drives the same steps. Each step is a `Send` or a `Question`, and is answered with the server's `Reply`.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shelflife.client.asking import (
    LEAST_FAILURE,
    Answering,
    AnyAnswering,
    Exchange,
    Fields,
    Question,
    Reply,
    Steps,
    driven,
    driven_async,
)
from shelflife.client.entries import Entry, Root, root_at
from shelflife.client.events import Saved
from shelflife.client.guard import Amended, AnyGuard
from shelflife.client.memory import Memory
from shelflife.client.reading import read_contract
from shelflife.contract.cells import united
from shelflife.contract.errors import BadMessage
from shelflife.contract.merging import merged, patch_between
from shelflife.contract.positions import AT_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition, has_gone_stale, verdict_in
from shelflife.contract.values import same_json

__all__ = ["Call", "Held", "Send", "exchange", "exchange_async", "precondition_for", "sending"]

_log = logging.getLogger("shelflife.memory")

_MOST_SENT_AGAIN = 2
"""So often at most is a request sent again whose remembered values are stale: once mended, then without any."""

_LONGEST_HEADER = 4096
"""A contract takes more, but many servers and gateways refuse a request with more than 8 KB of headers altogether."""


class Held(NamedTuple):
    """Remembered fixes that were shown to whoever has made a request. It may have them in it."""

    entries: Sequence[Entry]
    """The fixes that were shown."""

    position: str | None
    """What `Memory.position` said before they were recalled; None to ask nothing of the server."""

    before: Fields
    """What they were recalled for."""


class Call(NamedTuple):
    """A request that is to be made."""

    root: Root
    """Where the contract lives: mostly the origin of the server."""

    operation: str
    """What the request is for, as the server names it: `POST /orders/{id}`."""

    request: Fields
    """The fields of the request, as your agent wrote it."""

    guard: AnyGuard | None = None
    """With one, what is remembered is put into the request as far as it allows; without, the reply is learned from and no more."""

    conditional: bool = False
    """Ask the server not to carry out a request with remembered values when what they rest on has moved. It is then mended and sent again.

    For values that were shown it is `Held.position` that asks for this. Whatever sends the request has to send it once, or to say in
    `is_undone` that it has not.
    """

    compact: bool = True
    """Say which position in the server's log is known, so that it tells what has moved from there, and in which order. Without, it tells
    its versions each time, as in the paper."""

    path: str | None = None
    """That of the request, where it is left to replies to tell where on its server the contract lives. Then the root is the address of the
    request."""

    method: str | None = None
    """That of the request. Where this and the path are known, a server is asked about the request by them: it may not know the operation
    by the name that it has here."""

    held: Held | None = None
    """In place of what is remembered: what may be in the request already. The guard then is for when it has to be mended."""

    is_done: Callable[[], bool] | None = None
    """Asked where there was no reply: whether whatever sends the request has come to an end all the same, and no failure of it can be seen."""

    is_undone: Callable[[], bool] | None = None
    """Asked before a request that was refused as stale is sent again: whether it is known that nothing was done. Only the last time that
    it was sent was refused; something beneath may have sent it before, and lost the answer."""


class Send(NamedTuple):
    """A request that is to be sent now."""

    request: Fields
    """Its fields, with what is remembered in them."""

    headers: Mapping[str, str]
    """To be sent with it, in addition to its own."""

    held: Held
    """The remembered fixes that may be in it."""

    carried: Sequence[Entry]
    """Those of them that are."""

    without: Fields
    """The request without these."""

    amended: Amended | None = None
    """What was done to it, and what the guard refused."""

    precondition: Precondition | None = None
    """What it asks to be sure of, as its headers say."""

    @property
    def is_conditional(self) -> bool:
        """Whether it has a precondition."""
        return self.precondition is not None

    def is_refused_as_stale(self, reply: Reply) -> bool:
        """Whether a reply says that its precondition has failed, so that nothing was done. Any other 412 is the API's own."""
        return self.is_conditional and has_gone_stale(reply.status, reply.headers)

    def fixed_by(self, reply: Reply) -> Fields:
        """The request that the fixes in a reply are for."""
        if self.precondition is None or verdict_in(reply.headers) == "met" or reply.status < LEAST_FAILURE:
            return self.request
        without = merged(self.request, self.precondition.was)
        if self.is_refused_as_stale(reply) or self._is_for(without, reply):
            return without
        return self.request

    def _is_for(self, without: Fields, reply: Reply) -> bool:
        """Whether the fixes in a refusal are for this request, and not for the one that was sent.

        A tool may hand a refusal on as text, without the verdict on the precondition. Each fix says which values it is for.
        """
        try:
            of_each = [read_contract(reply, request) for request in (self.request, without)]
        except BadMessage:
            return False
        sent, before = (() if one is None else one.suggestions for one in of_each)
        return bool(before) and not sent


def exchange(memory: Memory, call: Call, answer: Answering[Send | Question]) -> Reply | None:
    """Make a call; `answer` sends what it is given, a request or a question. None when a request had no reply."""
    _check(memory, call, answer)
    return driven(sending(memory, call), answer)


async def exchange_async(memory: Memory, call: Call, answer: AnyAnswering[Send | Question]) -> Reply | None:
    """The same, awaiting what can be awaited."""
    _check(memory, call, answer)
    return await driven_async(sending(memory, call), answer, is_remote=memory.is_remote)


def _check(memory: object, call: object, answer: object) -> None:
    """Of whatever a program without types hands in."""
    if not (isinstance(memory, Memory) and isinstance(call, Call) and callable(answer)):
        kinds = ", ".join(type(one).__name__ for one in (memory, call, answer))
        raise TypeError(f"an exchange takes a Memory, a Call and a function that answers, and not {kinds}")


def sending(memory: Memory, call: Call) -> Generator[Send | Question, Reply | None, Reply | None]:
    """All that is done about a call. Whatever goes wrong with the memory is logged: the server may have carried the request out."""
    steps = _sending(memory, call)
    if memory.is_remote:
        root = call.root if call.path is None else call.root.removesuffix(call.path)
        steps = memory.in_moments(steps, root, call.operation, call.request)
    return (yield from steps)


def _sending(memory: Memory, call: Call) -> Generator[Send | Question, Reply | None, Reply | None]:
    reply = None
    try:
        call = call._replace(root=root_at(call.root) if call.path is None else memory.root_of(call.root))
    except ValueError:
        if call.path is None:
            raise
        _log.warning("a request is not understood, and goes past the memory", exc_info=True)
        return (yield _as_it_is(call))
    for again_count in range(_MOST_SENT_AGAIN + 1):
        is_last = again_count == _MOST_SENT_AGAIN
        guard = None if call.held is not None or is_last else call.guard
        if guard is not None:
            revalidating = _revalidating(memory, call, guard)
            yield from _unfailing(revalidating, "what is remembered for a request could not be revalidated")
        send = _prepared(memory, call, guard, is_first=again_count == 0)
        reply = yield send
        if reply is None:
            _note_saved(memory, call, send, call.is_done)
            return None
        is_stale = send.is_refused_as_stale(reply)
        at = send.headers.get(AT_HEADER)
        # One that was to have a precondition, and could not, is told as not judged too.
        is_conditional = send.is_conditional or (call.conditional and bool(send.carried))
        request = send.fixed_by(reply)
        seen = Exchange(call.root, call.operation, request, reply, at, is_conditional, call.path)
        yield from _unfailing(memory.observing(seen), "a response could not be observed")
        if not is_stale or call.guard is None:
            break  # it went through, or nothing may be written into it
        if call.is_undone is not None and not call.is_undone():
            break
        call = call._replace(request=send.without, held=None, conditional=True)
    if reply is not None and reply.status < LEAST_FAILURE:
        _note_saved(memory, call, send, lambda: True)
    return reply


def _note_saved(memory: Memory, call: Call, send: Send, is_done: Callable[[], bool] | None) -> None:
    """A request may have been accepted. If it has what was remembered, and mends none that was refused, a refusal was spared."""
    try:
        if is_done is None or not is_done():
            return
        is_mended = memory.telling.is_mended(call.root, call.operation, call.path, send.request)
        if send.carried and send.request != send.without and not is_mended:
            memory.telling.tell([Saved(call.root, call.operation)])
    except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
        _log.warning("what became of a request could not be noted", exc_info=True)


def _revalidating(memory: Memory, call: Call, guard: AnyGuard) -> Steps[None]:
    if not memory.is_clear(call.root):
        asked_as = f"{call.method} {call.path}" if call.method and call.path else None
        yield from memory.revalidating(call.root, call.operation, call.request, guard, asked_as)


def _unfailing(steps: Steps[object], otherwise: str) -> Steps[None]:
    try:
        yield from steps
    except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
        _log.warning(otherwise, exc_info=True)


def _prepared(memory: Memory, call: Call, guard: AnyGuard | None, *, is_first: bool) -> Send:
    """The request with what is remembered for it, and with what it says and asks in its headers."""
    request, amended, precondition = call.request, None, None
    held = call.held or Held((), None, request)
    headers: dict[str, str] = {}
    try:
        if guard is not None:
            # The server may move between this and the amending: the precondition then finds that it has, as it should.
            # Of a server that has no positions nothing can be asked: what it does is then told as not judged.
            position = memory.position(call.root) if call.conditional else None
            if position is not None or not call.conditional or memory.knows_versions(call.root):
                amended = memory.amend(call.root, call.operation, request, guard)
                held = Held([applied.entry for applied in amended.applied], position, request)
                request = amended.request
        carried = carried_by(request, held.entries)
        fixes = [entry.parameters for entry in carried]
        without = call.request if call.held is None else _without(fixes, request, held.before)
        if call.compact or call.conditional:
            headers[AT_HEADER] = memory.contract_at(call.root)
        if carried and held.position is not None:
            was = patch_between(request, without)
            precondition = _short(held.position, carried, was, brief=call.compact and is_first)
            headers[PRECONDITION_HEADER] = precondition.header
    except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
        _log.warning("a request could not be amended and is sent as it is", exc_info=True)
        return _as_it_is(call)
    return Send(request, headers, held, carried, without, amended, precondition)


def _as_it_is(call: Call) -> Send:
    return Send(call.request, {}, Held((), None, call.request), (), call.request)


def carried_by(request: Fields, entries: Iterable[Entry]) -> list[Entry]:
    """The entries whose fix a request has in it: to merge it once more changes nothing."""
    return [entry for entry in entries if same_json(merged(request, entry.parameters), dict(request))]


def precondition_for(
    position: str, entries: Sequence[Entry], was: Fields, *, brief: bool = False
) -> Precondition:
    """That nothing these entries rest on has moved since a position; `was` takes them out of the request.

    Where an entry does not say which cells it rests on, it may be any of its tables; which rules, any rule. The brief form says that
    nothing at all has moved: a fraction of the bytes, at the price of a round trip when something else has. It is for a first try: a
    server that moves all the time would refuse it for ever.
    """
    if brief:
        return Precondition(at=position, was=dict(was))
    grounds = [entry.grounds for entry in entries]
    cells = united(one.rests_on for one in grounds)
    rules = dict.fromkeys(rule for one in grounds for rule in one.rules or ())
    is_any_rule = any(one.rules is None for one in grounds)
    is_any_policy = any(one.policy is None for one in grounds)
    policies = dict.fromkeys(one.policy for one in grounds if one.policy is not None)
    return Precondition(
        at=position,
        cells=cells,
        rules=None if is_any_rule else tuple(rules),
        policies=None if is_any_policy else tuple(policies),
        was=dict(was),
    )


def _short(position: str, entries: Sequence[Entry], was: Fields, *, brief: bool) -> Precondition:
    """The same in a header that is not too long: the first of these forms that fits. Each asks for no less than the one before.

    What takes the values out again is given up last: without it the fixes of a refusal are for the request with the values in it.
    """
    exact, in_brief = (precondition_for(position, entries, was, brief=one) for one in (brief, True))
    of_whole_tables = msgspec.structs.replace(exact, cells=exact.cells and dict.fromkeys(exact.cells))
    forms = exact, of_whole_tables, in_brief
    without_was = (msgspec.structs.replace(form, was={}) for form in forms)
    return next(form for form in (*forms, *without_was) if len(form.header) <= _LONGEST_HEADER)


def _without(fixes: Iterable[Fields], request: Fields, before: Fields) -> dict[str, Any]:
    """A request that has these fixes in it, with what they set as it was before. All else that is in it stays."""
    values_of = defaultdict[str, list[Any]](list)
    for fix in fixes:
        for name, value in fix.items():
            values_of[name].append(value)
    result = dict(request)
    for name, values in values_of.items():
        now, old = request.get(name), before.get(name)
        if isinstance(now, Mapping) and all(isinstance(value, Mapping) for value in values):
            inner = _without(values, now, old if isinstance(old, Mapping) else {})
            if inner or isinstance(old, Mapping):  # else the object came with the fixes, and goes with them
                result[name] = inner
                continue
        if name in before:
            result[name] = old
        else:
            result.pop(name, None)
    return result
