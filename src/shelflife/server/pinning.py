"""How a request comes under the contract and how its refusal is answered, whatever framework or protocol it comes by."""

import logging
from collections.abc import Callable, Mapping

import msgspec

from shelflife.contract.positions import AT_HEADER, ROOT_HEADER, Named
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.server.errors import LogError, MalformedRequest
from shelflife.server.faces import Face
from shelflife.server.feedback import Answer, error_answer, refusal_answer
from shelflife.server.pins import Pin, Shown
from shelflife.server.policies import Refusal
from shelflife.server.provider import Provider
from shelflife.server.stamps import Stamp

__all__ = ["Incoming", "answer_to", "be_ready"]

_log = logging.getLogger("shelflife")

_CACHED = frozenset({"GET", "HEAD"})
"""Methods whose responses a cache may give to another client."""


class Incoming:
    """One request as it comes in: what it says to the contract.

    Whoever serves it looks into the log first where that is needed (`needs_the_log`, `look`), in a way that fits: the look may wait.
    Then it is put into a pin what the request sees. Whoever makes that has set how its operation is found.
    """

    __slots__ = ("_headers", "_method", "_named", "_precondition", "_provider")

    def __init__(self, provider: Provider, method: str, headers: Mapping[str, str]) -> None:
        """`headers` are those of the request, by lower-case name; `BadMessage` when its precondition cannot be understood."""
        self._provider, self._method, self._headers = provider, method, headers
        self._named: Named | None = None
        self._precondition: Precondition | None = None
        if provider.level and headers:
            self._named = Named.from_header(headers.get(AT_HEADER.lower(), ""))
            grounds = headers.get(PRECONDITION_HEADER.lower())
            self._precondition = None if grounds is None else Precondition.from_header(grounds)

    @property
    def needs_the_log(self) -> bool:
        """Whether the log must be looked into before the request is served."""
        return self._wants_the_end or not self._provider.is_ready

    @property
    def look(self) -> Callable[[], None]:
        """Looks into the log, as far as is needed; `LogError` when that cannot be done."""
        return self._provider.be_at_the_end if self._wants_the_end else self._provider.be_ready

    async def pin(self, pin: Pin, root_path: str = "") -> None:
        """Put into a pin what the request sees, where whoever serves it must not wait: a shared log is looked into in a thread."""
        why = await _done_in_time(self._provider, self.look) if self.needs_the_log else None
        self._show(pin, root_path, why)

    def pin_blocking(self, pin: Pin, root_path: str = "") -> None:
        """The same for a thread that may wait, though not for long."""
        why = None
        if self.needs_the_log:
            try:
                registry = self._provider.registry
                registry.looks.in_time_blocking(self.look) if registry.is_shared else self.look()
            except LogError as error:
                why = error
        self._show(pin, root_path, why)

    def _show(self, pin: Pin, root_path: str, why: LogError | None) -> None:
        """Put it into the pin. `why` is what kept the log from being looked into.

        Without its log a process tells nothing that could be taken for news, and answers as ever. Where a client asks for nothing new, it
        tells what it knows for a while.
        """
        provider, named = self._provider, self._named
        if why is not None:
            _warn(provider, why)
        is_out_of_date = provider.registry.is_out_of_date
        has_log = why is None and not is_out_of_date
        state = provider.registry.state
        face, stamp = provider.face(state, self._headers), Stamp(b"", [], is_compact=named is not None)
        if provider.level and not has_log:
            provider.counts.count("withheld_answers", "log")
        elif provider.level and not (named is None or provider.speaks_for(state)):
            provider.counts.count("withheld_answers", "policies")
        elif provider.level:
            stamp = self._stamp(face)
        root = provider.root_of(root_path) if named is not None and has_log else ""
        if root:  # also of a process that tells no position: its client must know which contract that is of
            stamp = msgspec.structs.replace(stamp, beside=[*stamp.beside, (ROOT_HEADER, root)])
        pin.shown = Shown(state, face, stamp, provider.counts)
        pin.precondition, pin.is_at_the_end, pin.is_out_of_date = self._precondition, has_log, is_out_of_date

    @property
    def _wants_the_end(self) -> bool:
        """Whether the client asks where the log is, or knows more than this process does: else it would be told that what it knows is
        not in the log."""
        registry, named = self._provider.registry, self._named
        if not registry.is_shared or (named is None and self._precondition is None):
            return False
        if self._precondition is not None or (named is not None and named.nonce):
            return True
        position = named.position if named is not None else None
        return position is not None and position.number > registry.state.number

    def _stamp(self, face: Face) -> Stamp:
        """What the response carries. A cache may give it to another client, which is shown other aliases."""
        named, stamp, beside = self._named, face.stamp, []
        if self._method in _CACHED:
            stamp = stamp if named is None else face.cacheable_stamp(named)
            beside += [("Vary", face.vary)] if face.vary else []
        elif named is not None:
            stamp = face.stamp_at(named, with_versions=self._provider.wire.tells_versions)
        return msgspec.structs.replace(stamp, beside=[*stamp.beside, *beside]) if beside else stamp


async def be_ready(provider: Provider) -> None:
    """Have the provider ready for what is no request, where whoever asks must not wait. Without its log it answers by what it knows."""
    if not provider.is_ready and (why := await _done_in_time(provider, provider.be_ready)):
        _warn(provider, why)


async def _done_in_time(provider: Provider, look: Callable[[], None]) -> LogError | None:
    """Look into the log, in a thread where that may have to wait; what kept it from being looked into."""
    try:
        await provider.registry.looks.in_time(look) if provider.registry.is_shared else look()
    except LogError as error:
        return error
    return None


def _warn(provider: Provider, why: LogError) -> None:
    provider.apps.warn_once(f"a client could not be answered from the end of the log: {why}")


def answer_to(failure: Exception, provider: Provider, pin: Pin, accept: str = "") -> Answer:
    """The answer to a request whose check has raised this, for an app that has not handled it. `accept` is what the request says of the
    form."""
    if isinstance(failure, Refusal):
        provider.counts.stamped += bool(pin.shown.stamp.members)
        return refusal_answer(provider.wire, accept, failure, pin.shown.face, pin.shown.stamp)
    if isinstance(failure, MalformedRequest):
        return error_answer(provider.wire, accept, 400, str(failure))
    _log.error("%s; the request was answered with 500", failure, exc_info=failure.__cause__)
    return error_answer(provider.wire, accept, 500, "internal server error")
