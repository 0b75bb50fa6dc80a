"""What it costs that answers are signed: at the server for each question, at the client once for each state that it meets, on the wire the same.

Everything else, a reply at a position that is known, is measured with and without keys in turns. There is no network here: what a client
spends on a question has the making of the answer in it.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.figures import Figure, median_figure
from shelflife.client import Exchange, Memory, Question, Reply
from shelflife.contract.positions import Named
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Provider, Signing
from shelflife.server.endpoints import ContractEndpoints, EndpointCall

__all__ = ["measure"]

_SUBJECT = "signing"
_TABLE_COUNTS = (6, 50, 500)
_ORIGIN = "https://api.example:443"
_OPERATION = "POST /orders"
_CHANGES, _SIGNED = "/contract/changes", "/contract/signed"


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
        log=folder / "log.db",
        signing=Signing(signer=key),
    )
    server = _Server(provider)
    memories = {True: server.memory(key), False: server.memory(None)}
    for memory in memories.values():
        memory.observe(server.exchange(memory))
    key_us: list[float] = []
    answering_us: dict[str, list[float]] = {_SIGNED: [], _CHANGES: []}
    meeting_us: dict[bool, list[float]] = {True: [], False: []}
    known_us: dict[bool, list[float]] = {True: [], False: []}
    sizes: dict[str, int] = {}
    for number in range(state_count):
        query = f"from={server.at}&nonce=n{number}"
        provider.registry.reload_table("table_0", set={"k": {"n": 1 + number}})
        server.answer(_CHANGES, query)  # what is made once for each state is made now
        for path, spent_us in answering_us.items():
            with _timed(spent_us):
                answer = server.answer(path, query)
            sizes[path] = len(answer)
        with _timed(key_us):
            key.sign(answer)
        for spent in (meeting_us, known_us):
            for is_pinned, memory in memories.items():
                exchange = server.exchange(memory)
                with _timed(spent[is_pinned]):
                    memory.observe(exchange)
    provider.close()
    tables = f"{table_count} tables"
    yield median_figure(_SUBJECT, f"{tables}, server: the signature alone", key_us, "µs")
    for path, how in ((_SIGNED, "signed"), (_CHANGES, "not signed")):
        what = f"{tables}, server: what has moved since a position, {how}"
        yield median_figure(_SUBJECT, what, answering_us[path], "µs")
    for is_pinned, how in ((True, "with a pinned key"), (False, "without keys")):
        what = f"{tables}, client {how}: the first reply of a state"
        yield median_figure(_SUBJECT, what, meeting_us[is_pinned], "µs")
        what = f"{tables}, client {how}: a reply of a known state"
        yield median_figure(_SUBJECT, what, known_us[is_pinned], "µs")
    for path, how in ((_SIGNED, "signed, once for each state and client"), (_CHANGES, "not signed")):
        yield Figure(
            subject=_SUBJECT,
            what=f"{tables}, wire: what has moved since a position, {how}",
            measured=sizes[path],
            unit="bytes",
            sample_count=1,
        )


@contextmanager
def _timed(spent_us: list[float]) -> Iterator[None]:
    begun_at = time.perf_counter()
    yield
    spent_us.append((time.perf_counter() - begun_at) * 1e6)


class _Server:
    """What a client gets to see of a provider, without a network."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._endpoints = ContractEndpoints(provider, lambda operation: None)

    @property
    def at(self) -> str:
        return str(self._provider.face(self._provider.state, {}).position)

    def memory(self, key: SigningKey | None) -> Memory:
        return Memory(ask=self._ask, trust=None if key is None else trust({_ORIGIN: [key.key]}))

    def answer(self, path: str, query: str) -> bytes:
        answer = self._endpoints.answer(EndpointCall("GET", path, query, {}))
        if answer.status != 200:
            raise AssertionError(answer.body)
        return answer.body

    def exchange(self, memory: Memory) -> Exchange:
        """A request that names what the memory knows, and its reply."""
        at = memory.contract_at(_ORIGIN)
        named = Named.from_header(at)
        if named is None:
            raise AssertionError("a memory names what it knows")
        stamp = self._provider.face(self._provider.state, {}).stamp_at(named, with_versions=False)
        reply = Reply(200, b'{"success":true,' + stamp.members + b"}", {"content-type": "application/json"})
        return Exchange(_ORIGIN, _OPERATION, {}, reply, at)

    def _ask(self, question: Question) -> Reply:
        parts = urlsplit(question.url)
        return Reply(200, self.answer(parts.path, parts.query))
