"""An eviction by row from Valkey with all of ours taken out: our command, whose values were worked out before, over a bare socket."""

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.fixes import ORIGIN, Telling, row_node
from shelflife.client.events import Evicted, Reason
from shelflife.client.stores import Write, revision_after
from shelflife.client.strategies import EXACT, table_tag
from shelflife.client.valkey import ValkeyStore, _decode_written
from shelflife.contract.positions import MovedTable

__all__ = ["BareValkey"]

_AT_ONCE = 65536


class _Speaking(ValkeyStore):
    """Says what it would send, and sends nothing."""

    _is_checked = True
    said = b""

    def _answer(self, *command: str | bytes) -> Any:
        parts = [part if isinstance(part, bytes) else part.encode() for part in command]
        self.said = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class BareValkey:
    """The engine of a store, beside the store."""

    def __init__(self, store: ValkeyStore, address: str) -> None:
        self._store = store
        self._speaking = _Speaking(address, namespace=store.namespace)
        self._speaking._is_checked = True
        at = urlsplit(address)
        self._socket = socket.create_connection((at.hostname, at.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def eviction(self, row: str) -> Callable[[], list[Evicted]]:
        """Decodes the response that tells of a row, has what rests on that dropped, and says what has left."""
        table, _, key = row_node(row).partition(":")
        moved = MovedTable(changed=(key,), columns={key: ("code",)})
        known = self._store.known(ORIGIN)
        revisions = known.revision, revision_after(known.revision)
        write = Write(known.knowledge, drop=tuple(EXACT.forgets(table, moved).tags), capacity=10_000_000)
        self._speaking._written(ORIGIN, revisions, write, (), (table_tag(table),))
        command, body = self._speaking.said, Telling().evicting(row).reply.body

        def evicted() -> list[Evicted]:
            msgspec.json.decode(body)
            self._socket.sendall(command)
            told = self._socket.recv(_AT_ONCE)
            length, _, answer = told.partition(b"\r\n")
            while len(answer) < int(length[1:]) + 2:
                answer += self._socket.recv(_AT_ONCE)
            _, _, dropped, _, _ = _decode_written(answer[:-2])
            return [Evicted(one.told, Reason.ROW_CHANGED) for one in dropped if not isinstance(one.told, str)]

        return evicted
