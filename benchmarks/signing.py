"""What it costs that states are signed: at the server once for each state, at the client once for each state that it meets, on the wire the same.

Everything else, a response at a state that was met before, is measured with and without keys in turns.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import Figure, median_figure
from shelflife.client import Exchange, Memory, Question, Reply
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Provider, Signing

__all__ = ["measure"]

_SUBJECT = "signing"
_TABLE_COUNTS = (6, 50, 500)
_ORIGIN = "https://api.example:443"
_OPERATION = "POST /orders"


def measure(is_quick: bool) -> Iterator[Figure]:
    """Both sides, by the number of tables."""
    state_count = 5 if is_quick else 200
    for table_count in _TABLE_COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            yield from _measured(table_count, state_count, Path(folder))


def _measured(table_count: int, state_count: int, folder: Path) -> Iterator[Figure]:
    key = SigningKey.new()
    provider = Provider(
        {f"table_{number}": {"k": {"n": 0}} for number in range(table_count)},
        state_file=folder / "state.db",
        signing=Signing(signer=key),
    )
    server = _Server(provider)
    signed, plain = server.memory(key), server.memory(None)
    key_us: list[float] = []
    signing_us: list[float] = []
    again_us: list[float] = []
    meeting_us: dict[bool, list[float]] = {True: [], False: []}
    known_us: dict[bool, list[float]] = {True: [], False: []}
    for number in range(state_count):
        provider.registry.reload_table("table_0", set={"k": {"n": number}})
        text = server.answer()
        begun_at = time.perf_counter()
        key.sign(text)
        key_us.append((time.perf_counter() - begun_at) * 1e6)
        provider.registry.reload_table("table_0", set={"k": {"n": -1 - number}})
        for spent_us in (signing_us, again_us):
            begun_at = time.perf_counter()
            server.answer()
            spent_us.append((time.perf_counter() - begun_at) * 1e6)
        for spent in (meeting_us, known_us):
            for is_signed, memory in ((True, signed), (False, plain)):
                exchange = server.exchange()
                begun_at = time.perf_counter()
                memory.observe(exchange)
                spent[is_signed].append((time.perf_counter() - begun_at) * 1e6)
    provider.close()
    tables = f"{table_count} tables"
    yield median_figure(_SUBJECT, f"{tables}, server: the signature alone", key_us, "µs")
    yield median_figure(_SUBJECT, f"{tables}, server: a state is signed and written down", signing_us, "µs")
    yield median_figure(_SUBJECT, f"{tables}, server: a state that was signed before", again_us, "µs")
    for is_signed, how in ((True, "with a pinned key"), (False, "without keys")):
        what = f"{tables}, client {how}: the first response of a state"
        yield median_figure(_SUBJECT, what, meeting_us[is_signed], "µs")
        what = f"{tables}, client {how}: a response of a known state"
        yield median_figure(_SUBJECT, what, known_us[is_signed], "µs")
    yield Figure(
        subject=_SUBJECT,
        what=f"{tables}, wire: the signed state, once for each state and client",
        measured=len(server.answer()),
        unit="bytes",
        sample_count=1,
    )


class _Server:
    """What a client gets to see of a provider, without a network."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def memory(self, key: SigningKey | None) -> Memory:
        return Memory(ask=self._ask, trust=None if key is None else trust({_ORIGIN: [key.key]}))

    def answer(self) -> bytes:
        lineage = self._provider.lineage
        if lineage is None:
            raise AssertionError("the provider signs")
        return msgspec.json.encode(lineage.answer(None, self._provider.face(self._provider.state, {})))

    def exchange(self) -> Exchange:
        body = b'{"success":true,' + self._provider.state.face(self._provider.level).stamp.members + b"}"
        return Exchange(_ORIGIN, _OPERATION, {}, Reply(200, body, {"content-type": "application/json"}))

    def _ask(self, question: Question) -> Reply:
        if "/contract/signed" in question.url:
            return Reply(200, self.answer())
        changes: Any = self._provider.state.face(self._provider.level).changes_since(
            {"table_0": question.url.rpartition("%3A")[2]}, None
        )
        return Reply(200, msgspec.json.encode(changes))
