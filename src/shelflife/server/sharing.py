"""What workers that share a log tell each other beside it: each what it has seen of something, now and then and in one piece."""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from shelflife.server.errors import LogError
from shelflife.server.registry import Registry

__all__ = ["Shared"]

_log = logging.getLogger("shelflife")

_SHARED_FOR_S = 3600.0
"""So long others count with what a worker has seen that has ended."""
_TOLD_AGAIN_S = _SHARED_FOR_S / 2
"""So often one that goes on tells it again, though nothing is new."""

Seen = TypeVar("Seen")


class Shared(Generic[Seen]):
    """What one process tells the others of one thing, and what they have told."""

    def __init__(self, what: str, kind: type[Seen], every_s: float) -> None:
        """`kind` is what is told, as JSON has it; `every_s` says how often at most."""
        self._what, self._every_s = what, every_s
        self._decode = msgspec.json.Decoder(kind).decode
        self._worker = secrets.token_hex(8)
        self._met_at = 0.0
        self.is_changed = False
        """Whether something was seen since it was last told."""
        self._told_at: float | None = None
        self._read: dict[str, tuple[bytes, Seen | None]] = {}
        """What others had told when it was last looked at, and what that says."""
        self._lock = threading.Lock()

    def meet(
        self,
        registry: Registry,
        seen: Callable[[], Seen],
        learn: Callable[[list[Seen]], None] | None = None,
        *,
        now: bool = False,
    ) -> None:
        """Tell the others what was seen, if it is time for that, and learn what they have.

        Two race here: the thread that follows the log, and one that answers an operator. The first must not put what it saw earlier over what
        the second has told.
        """
        if not now and time.monotonic() - self._met_at < self._every_s:
            return
        with self._lock:
            self._met_at = time.monotonic()
            try:
                self._tell(registry, seen)
                if learn is not None:
                    learn(self.others(registry))
            except LogError as error:
                self.is_changed = True
                _log.info("what was seen of %s is not shared: %s", self._what, error)

    def _tell(self, registry: Registry, seen: Callable[[], Seen]) -> None:
        is_due = self._told_at is not None and self._met_at - self._told_at >= _TOLD_AGAIN_S
        if self.is_changed or is_due:
            self.is_changed, self._told_at = False, self._met_at
            registry.share(self._what, self._worker, msgspec.json.encode(seen()), _SHARED_FOR_S)

    def others(self, registry: Registry) -> list[Seen]:
        """What the others have told. Whatever has not changed is not read again."""
        shared = registry.shared(self._what) if registry.is_shared else {}
        known, read = self._read, {}
        for worker, blob in shared.items():
            if worker != self._worker:
                was, seen = known.get(worker, (b"", None))
                read[worker] = blob, seen if was == blob else self._seen_in(blob)
        self._read = read
        return [seen for _, seen in read.values() if seen is not None]

    def _seen_in(self, blob: bytes) -> Seen | None:
        """What a worker has told; None where it is of a release that writes it otherwise."""
        try:
            return self._decode(blob)
        except msgspec.MsgspecError:
            return None
