"""A store in Valkey or Redis: shared by agents on any number of machines. It needs the extra `redis`.

A write is one script, which Valkey carries out whole; a look is another. All that belongs to one root is under keys with one hash tag.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

import msgspec

from shelflife.client.diary import HOUR_S, KEPT_HOURS, Noted
from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.near import Message, News
from shelflife.client.remote import LONGEST_VERB_S, RemoteStore
from shelflife.client.seen import Look, Told, entry_of, stored_of
from shelflife.client.stores import Filed, StoreError, Write, Written
from shelflife.client.valkey_connections import Connections, client_of
from shelflife.client.valkey_scripts import (
    CHECKING,
    CLEARING,
    COUNTING,
    FINDING,
    LOOKING,
    NOTING,
    SWEEPING,
    TELLING,
    WRITING,
    Script,
)
from shelflife.extras import needing
from shelflife.places import split_address

with needing("redis"):
    import redis

__all__ = ["ValkeyStore"]

_FORMAT = 5
_FEW_HOURS = 48
"""Of a diary they are asked for by name: a search goes through all keys that there are."""

_MOST_LEFT = 128
"""So many entries at most that have gone are not put in order yet."""

_SAFE_POLICIES = ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl")
"""With any other Valkey drops keys by itself when it is full, and what leads to an entry could go before the entry does."""


class _Kept(NamedTuple):
    """What is told of an entry, as a list."""

    # The scripts look for the first five by where they are: each is always as long as here.
    learned_at: float
    id: str
    place: str
    slot: str
    kind: str
    """The operation and the shape, in short."""

    told: Entry | str
    """As JSON where MessagePack cannot carry it, which has no number of more than 64 bits."""


_Looked = tuple[str, str | Literal[False], list[str] | Literal[False], list[int], list[list[_Kept]]]
_Written = tuple[list[int], list[int], list[_Kept], list[_Kept], list[_Kept | None]]
"""How many had been dropped after each tag and after the ids, what was counted; then what was dropped, trimmed, and there before."""

_encode = msgspec.json.Encoder().encode
_decode_looked = msgspec.msgpack.Decoder(_Looked).decode
_decode_written = msgspec.msgpack.Decoder(_Written).decode
_decode_one = msgspec.msgpack.Decoder(_Kept).decode
_decode_all = msgspec.msgpack.Decoder(list[_Kept]).decode
_pack = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_shape = msgspec.json.Decoder(Shape).decode
_decode_noted = msgspec.json.Decoder(tuple[str, str]).decode


class ValkeyStore(RemoteStore):
    """Entries in Valkey, or in Redis: `redis://host:6379/0`, or `rediss://` for TLS.

    A write is as durable as the engine: with `appendfsync everysec` a power cut may take the last second with it. A memory notices
    that its store has gone back, and asks the server before it uses anything.
    """

    failures = (redis.RedisError,)

    def __init__(
        self, url: str, *, namespace: str = "default", near: bool = False, read_only: bool = False
    ) -> None:
        """Where there is nothing, nothing is made to read it."""
        self._is_read_only = read_only
        try:
            self._client = client_of(url, longest_s=LONGEST_VERB_S, retry_count=1)
            address = split_address(url)
            if address.path and not address.path[1:].isdecimal():
                raise ValueError
            where = (
                f"{address.scheme}://{address.hostname or 'localhost'}:{address.port or 6379}{address.path}"
            )
        except ValueError:
            raise StoreError(
                "the address of the memory cannot be read; give one as in redis://host:6379/0, and in a password %40 for @"
            ) from None
        self._url = url
        self._connections = Connections(self._client, self._check)
        # What is published is heard in all databases of a Valkey, whichever it is about.
        number = self._client.get_connection_kwargs().get("db") or 0
        self._news, self._roots, self._format, self._hours = (
            f"shelflife:{namespace}:{what}" for what in (f"news:{number}", "roots", "format", "diary:")
        )
        super().__init__(where, namespace=namespace, near=near)

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self._connections.after_fork_in_child()

    def _is_away(self, error: Exception) -> bool:
        is_answer = isinstance(error, redis.ResponseError) and not isinstance(
            error, redis.exceptions.ReadOnlyError | redis.exceptions.OutOfMemoryError
        )
        return super()._is_away(error) and not is_answer

    def _run(self, script: Script, root: Root, *values: str | bytes) -> Any:
        return self._evaluated(script, f"{self._prefix(root)}root", *values)

    def _evaluated(self, script: Script, *values: str | bytes) -> Any:
        """What a script gives. The first value is the key that it is about."""
        try:
            return self._answer("EVALSHA", script.name, "1", *values)
        except redis.exceptions.NoScriptError:
            return self._answer("EVAL", script.text, "1", *values)

    def _answer(self, *command: str | bytes) -> Any:
        return self._connections.answer(_encoded(command), self._moment.until)

    def _prefix(self, root: Root) -> str:
        """All keys of a root have this hash tag. What would end it early is not in a root, for no URL has braces."""
        return f"shelflife:{{{self.namespace} {root}}}:"

    def _check(self, answer: Callable[[bytes], Any]) -> None:
        """Find out, once for each connection, whether it can be relied on."""
        asked = (
            "EVAL",
            CHECKING.text,
            "1",
            self._format,
            str(_FORMAT),
            self._news,
            "" if self._is_read_only else "made",
        )
        policy, found, may_publish = (told.decode(errors="replace") for told in answer(_encoded(asked)))
        if policy not in _SAFE_POLICIES:
            raise StoreError(
                f"the memory {self.where} may lose parts of what is remembered when it is full: its maxmemory-policy is"
                f" {policy}, and should be noeviction"
            )
        if found != str(_FORMAT) and (found or not self._is_read_only):
            raise StoreError(
                f"the memory {self.where} has format {found}; this version of shelflife reads {_FORMAT}"
            )
        if may_publish != "yes":
            raise StoreError(
                f"the memory {self.where} cannot be written: its user may not publish what is written; allow that with"
                " ACL SETUSER and &shelflife:*"
            )

    def _check_anew(self) -> None:
        """The same now and then: what is found to be wrong holds for all connections."""
        try:
            self._check(lambda command: self._connections.answer(command, self._moment.until))
        except StoreError:
            self._connections.close()
            raise

    def _look(self, look: Look) -> Told:
        places = (*look.missing, *look.held)
        shapes_asked = "" if look.operation is None else "lacking" if look.lacks_shapes else "held"
        counts = str(len(places)), str(len(look.missing))
        asked = str(look.revision), look.operation or "", shapes_asked, *counts, *places
        told = self._run(LOOKING, look.root, *asked, *map(_tag, look.tags))
        revision, knowledge, shapes, counted, found = _decode_looked(told)
        return Told(
            int(revision),
            None if knowledge is False else knowledge.encode(),
            None if shapes is False else tuple(map(_decode_shape, sorted(shapes))),
            {place: _entries(filed) for place, filed in zip(places, found, strict=False)},
            counted,
        )

    def _written(
        self,
        root: Root,
        revisions: tuple[int, int],
        write: Write,
        used: Sequence[str],
        counted: Sequence[str],
    ) -> tuple[Written, Sequence[int]] | None:
        revision, new_revision = revisions
        if not revision:
            # Before anything is there: what is in no list could not be found.
            self._answer("SADD", self._roots, root)
        told = self._run(
            WRITING,
            root,
            *(str(revision), str(new_revision), _encode(write.knowledge), self._news, root),
            *("" if write.capacity is None else str(write.capacity), str(_MOST_LEFT)),
            *("".join(map(_tag, write.drop)), "".join(write.drop_ids)),
            *("".join(used), "".join(map(_tag, counted))),
            *(packed for one in write.put for packed in _packed_entry(one)),
        )
        if told is None:
            return None
        if not revision:
            self._answer("SADD", self._roots, root)  # again: somebody may have cleared it just before
        ends, counts, dropped, trimmed, old = _decode_written(told)
        gone, first = _entries(dropped), 0
        left: list[tuple[Entry, str]] = []
        for tag, end in zip(write.drop, ends, strict=False):
            left += [(entry, tag) for entry in gone[first:end]]
            first = end
        if len(gone) > first:
            left += [(entry, entry.id) for entry in gone[first : ends[-1]]]
            left += [(entry, "") for entry in gone[ends[-1] :]]
        stored = stored_of(write.put, [None if one is None else _entry(*one) for one in old]) if old else []
        return Written(left, _entries(trimmed), stored), counts

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        return _entries(_decode_all(self._run(FINDING, root, *map(_tag, tags))))

    def _add_to_diary(self, noted: Sequence[Noted]) -> None:
        self._check_anew()
        for hour, of_it in groupby(noted, lambda one: one.hour):
            values = [
                value for one in of_it for value in (_encode((one.root, one.what)), str(one.times).encode())
            ]
            self._evaluated(COUNTING, f"{self._hours}{hour}", str(KEPT_HOURS * HOUR_S), *values)

    def _diary(self, since: int) -> list[Noted]:
        self._check_anew()
        hours = range(since, int(time.time()) // HOUR_S + 2)
        keys = (f"{self._hours}{hour}".encode() for hour in hours)
        if len(hours) > _FEW_HOURS:
            keys = self._client.scan_iter(f"{self._hours}*", count=1000)
        return [
            Noted(int(key.rpartition(b":")[2]), *_decode_noted(what), int(times))
            for key in keys
            if int(key.rpartition(b":")[2]) >= since
            for what, times in self._client.hgetall(key).items()
        ]

    def _known_roots(self) -> list[Root]:
        self._check_anew()
        return [root.decode() for root in self._client.smembers(self._roots)]

    def _entries(self) -> Iterator[Entry]:
        for root in sorted(self._known_roots()):
            found = self._client.hscan_iter(f"{self._prefix(root)}entries", count=1000)
            yield from (_entry(*_decode_one(filed)) for _, filed in found)

    def _note(self, root: Root, used: Sequence[str]) -> None:
        self._run(NOTING, root, *used)

    def _clear(self) -> None:
        for root in self._client.smembers(self._roots):
            self._run(CLEARING, root.decode())
            self._client.srem(self._roots, root)
            if self._client.exists(f"{self._prefix(root.decode())}root"):
                self._client.sadd(self._roots, root)  # somebody has written it meanwhile
        for key in self._client.scan_iter(f"shelflife:{{{self.namespace} *", count=1000):
            self._evaluated(SWEEPING, key.partition(b"}:")[0] + b"}:root", key)
        for key in self._client.scan_iter(f"{self._hours}*", count=1000):
            self._client.delete(key)
        self._client.delete(self._format)
        self._connections.close()  # the next one writes the format again
        self._client.publish(self._news, msgspec.msgpack.encode(("", "0", "0", "", [], [])))

    def _listening(self) -> "_Subscription":
        # It must not connect anew by itself: what was published meanwhile would be missed.
        client = client_of(self._url, longest_s=LONGEST_VERB_S, retry_count=0)
        return _Subscription(client, self._news, self._tell)

    def _tell(self, channel: str, sign: str) -> None:
        self._moment.until = time.monotonic() + LONGEST_VERB_S
        self._evaluated(TELLING, self._format, channel, sign)

    def _disconnect(self) -> None:
        self._client.close()
        self._connections.close()


class _Subscription:
    """What Valkey publishes about writes, over a connection of its own."""

    def __init__(self, client: Any, channel: str, tell: Callable[[str, str], None]) -> None:
        """`tell` publishes a sign, over another connection."""
        self._client, self._tell = client, tell
        self._signs = f"{channel}:{secrets.token_hex(8)}"
        """A channel for signs, which are for nobody else. Valkey tells of all channels in one order."""
        self._pubsub = client.pubsub()
        try:
            self._pubsub.subscribe(channel, self._signs)
            for _ in range(2):
                if self._next(LONGEST_VERB_S, "subscribe") is None:
                    raise redis.TimeoutError("it does not say that it will tell of writes")
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float) -> list[News | str]:
        message = self._next(timeout_s, "message")
        if message is None:
            return []
        return [message["data"].decode() if message["channel"].decode() == self._signs else _news_in(message)]

    def ask(self, sign: str) -> None:
        self._tell(self._signs, sign)

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()

    def _next(self, timeout_s: float, kind: str) -> Any:
        """What is told next; None when the time is over."""
        message = self._pubsub.get_message(timeout=timeout_s)
        if message is not None and message["type"] != kind:
            raise redis.ConnectionError(f"it tells of {message['type']}, and not of a write")
        return message


def _encoded(command: Sequence[str | bytes]) -> bytes:
    encoded = [part if isinstance(part, bytes) else part.encode() for part in command]
    parts = b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded])
    return b"*%d\r\n%b" % (len(encoded), parts)


def _news_in(message: Any) -> News:
    return News.from_message(msgspec.msgpack.decode(message["data"], type=Message))


def _entry(learned_at: float, id: str, place: str, slot: str, kind: str, told: Entry | str) -> Entry:
    return entry_of(_decode_entry(told) if isinstance(told, str) else told, learned_at, id, place, slot)


def _entries(kept: Iterable[_Kept]) -> list[Entry]:
    return [_entry(*one) for one in kept]


def _packed_entry(filed: Filed) -> tuple[bytes, bytes]:
    """What is told of an entry, and how it is filed."""
    entry = filed.entry
    shape, tags = _encode(entry.condition.shape).decode(), sorted({*map(_tag, filed.tags)})
    kind = _tag(f"{entry.operation}\n{shape}")
    kept = _Kept(float(entry.learned_at), entry.id, entry.place, entry.slot, kind, entry)
    try:
        told = _pack(kept)
    except OverflowError:
        told = _pack(kept._replace(told=_encode(entry).decode()))
    return told, _pack((entry.id, entry.place, filed.slot, entry.operation, shape, tags))


@lru_cache(maxsize=4096)
def _tag(tag: str) -> str:
    """A tag in short. Two that met would only drop an entry too many."""
    return hashlib.blake2b(tag.encode(), digest_size=8).hexdigest()
