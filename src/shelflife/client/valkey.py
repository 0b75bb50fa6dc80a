"""A store in Valkey or Redis: shared by agents on any number of machines. It needs the extra `redis`.

A write is one script, which Valkey carries out whole; a look is another. All that belongs to one root is under keys with one hash tag.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.near import Message, News
from shelflife.client.remote import LONGEST_CONNECTING_S, LONGEST_VERB_S, RemoteStore
from shelflife.client.seen import Look, Told
from shelflife.client.stores import Filed, StoreError, Write, Written
from shelflife.client.valkey_scripts import FINDING, LOOKING, NOTING, WRITING, Script
from shelflife.extras import needing

with needing("redis"):
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

__all__ = ["ValkeyStore"]

_FORMAT = 3
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

    @property
    def entry(self) -> Entry:
        entry = _decode_entry(self.told) if isinstance(self.told, str) else self.told
        if entry.learned_at != self.learned_at:
            entry = msgspec.structs.replace(entry, learned_at=self.learned_at)
        known = vars(entry)  # what is asked for next, and costs a digest each
        known["id"], known["place"], known["slot"] = self.id, self.place, self.slot
        return entry


_Looked = tuple[str, str | Literal[False], list[str] | Literal[False], list[int], list[list[_Kept]]]
_Written = tuple[list[int], list[int], list[_Kept], list[_Kept], list[_Kept | None]]

_encode = msgspec.json.Encoder().encode
_decode_looked = msgspec.msgpack.Decoder(_Looked).decode
_decode_written = msgspec.msgpack.Decoder(_Written).decode
_decode_one = msgspec.msgpack.Decoder(_Kept).decode
_decode_all = msgspec.msgpack.Decoder(list[_Kept]).decode
_pack = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_shape = msgspec.json.Decoder(Shape).decode


class ValkeyStore(RemoteStore):
    """Entries in Valkey, or in Redis: `redis://host:6379/0`, or `rediss://` for TLS.

    A write is as durable as the engine: with `appendfsync everysec` a power cut may take the last second with it. A memory notices
    that its store has gone back, and asks the server before it uses anything.
    """

    failures = (redis.RedisError,)

    def __init__(self, url: str, *, namespace: str = "default", near: bool = False) -> None:
        try:
            self._client = _client_of(url, retry_count=1)
            address = urlsplit(url)
            if "@" in address.path or (address.path and not address.path[1:].isdecimal()):
                raise ValueError(url)  # it may be a part of a password
            where = (
                f"{address.scheme}://{address.hostname or 'localhost'}:{address.port or 6379}{address.path}"
            )
        except ValueError:
            raise StoreError(
                "the address of the memory cannot be read; give one as in redis://host:6379/0"
            ) from None  # there may be a password in it
        self._url = url
        self._idle: list[Any] = []
        """Connections that nobody uses just now."""
        self._is_checked = False
        super().__init__(where, namespace=namespace, near=near)

    def after_fork_in_child(self) -> None:
        """What the parent is connected to is its own."""
        super().after_fork_in_child()
        self._idle = []

    def _is_away(self, error: Exception) -> bool:
        is_answer = isinstance(error, redis.ResponseError) and not isinstance(
            error, redis.exceptions.ReadOnlyError | redis.exceptions.OutOfMemoryError
        )
        return super()._is_away(error) and not is_answer

    def _run(self, script: Script, root: Root, *values: str | bytes) -> Any:
        if not self._is_checked:
            self._check()
        prefix = self._prefix(root)
        values = ("1", f"{prefix}root", prefix, *values)
        try:
            return self._answer(_packed("EVALSHA", script.name, *values))
        except redis.exceptions.NoScriptError:
            return self._answer(_packed("EVAL", script.text, *values))

    def _answer(self, command: bytes) -> Any:
        """What Valkey answers, over a connection that is the driver's: all that the driver does beside takes longer than Valkey does.

        What was sent over a connection that had ended is sent again. A write that was carried out is then found to be too late, and is
        decided anew.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            pool = self._client.connection_pool
            connection = pool.connection_class(**pool.connection_kwargs)
        try:
            try:
                connection.send_packed_command([command], check_health=False)
                return connection.read_response()
            except redis.ConnectionError:
                connection.send_packed_command([command], check_health=False)
                return connection.read_response()
        except redis.ResponseError:
            raise  # which is an answer, and was read to its end
        except BaseException:
            connection.disconnect()  # else its answer would be taken for that of the next command
            raise
        finally:
            self._idle.append(connection)

    def _prefix(self, root: Root) -> str:
        """All keys of a root have this hash tag. What would end it early is not in a root, for no URL has braces."""
        return f"shelflife:{{{self.namespace} {root}}}:"

    @property
    def _roots(self) -> str:
        return f"shelflife:{self.namespace}:roots"

    @property
    def _news(self) -> str:
        return f"shelflife:{self.namespace}:news"

    def _check(self) -> None:
        """Find out, once for each start, whether it can be relied on."""
        policy = self._client.info("memory").get("maxmemory_policy", "noeviction")
        if policy not in _SAFE_POLICIES:
            raise StoreError(
                f"the memory {self.where} may lose parts of what is remembered when it is full: its maxmemory-policy is"
                f" {policy}, and should be noeviction"
            )
        format_key = f"shelflife:{self.namespace}:format"
        self._client.set(format_key, _FORMAT, nx=True)
        found = self._client.get(format_key)
        if found != str(_FORMAT).encode():
            raise StoreError(
                f"the memory {self.where} has format {(found or b'').decode(errors='replace')};"
                f" this version of shelflife reads {_FORMAT}"
            )
        self._is_checked = True

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
            {place: [one.entry for one in filed] for place, filed in zip(places, found, strict=False)},
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
            self._client.sadd(self._roots, root)
        drop, drop_ids = tuple(write.drop), tuple(write.drop_ids)
        capacity = "" if write.capacity is None else str(write.capacity)
        settings = root, capacity, str(_MOST_LEFT)
        lists = [*map(_tag, drop)], drop_ids, used, [*map(_tag, counted)]
        told = self._run(
            WRITING,
            root,
            *(str(revision), str(new_revision), _encode(write.knowledge), self._news, *settings),
            *(str(len(one)) for one in lists),
            *(value for one in lists for value in one),
            *(packed for one in write.put for packed in _packed_entry(one)),
        )
        if told is None:
            return None
        numbers, counts, dropped, trimmed, old = _decode_written(told)
        why = ("", *drop, *drop_ids)
        left = [(told.entry, why[number]) for told, number in zip(dropped, numbers, strict=True)]
        written = Written(left, [told.entry for told in trimmed], [])
        for filed, before in zip(write.put, old, strict=True):
            entry = filed.entry
            if before is not None:
                entry = msgspec.structs.replace(entry, learned_at=before.learned_at)
            if before is None or entry.renews(before.entry):
                written.stored.append(entry)
        return written, counts

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        found = _decode_all(self._run(FINDING, root, *map(_tag, tags)))
        return [told.entry for told in found]

    def _entries(self) -> Iterator[Entry]:
        self._check()
        for root in sorted(self._client.smembers(self._roots)):
            found = self._client.hscan_iter(f"{self._prefix(root.decode())}entries", count=1000)
            yield from (_decode_one(filed).entry for _, filed in found)

    def _note(self, root: Root, used: Sequence[str]) -> None:
        self._run(NOTING, root, *used)

    def _clear(self) -> None:
        for pattern in (
            f"shelflife:{{{_literally(self.namespace)} *",
            f"shelflife:{_literally(self.namespace)}:*",
        ):
            for key in self._client.scan_iter(pattern, count=1000):
                self._client.delete(key)
        self._is_checked = False
        self._client.publish(self._news, msgspec.msgpack.encode(("", "0", "0", "", [], [])))

    def _listening(self) -> "_Subscription":
        return _Subscription(_client_of(self._url, retry_count=0), self._news)

    def _disconnect(self) -> None:
        self._client.close()
        while self._idle:
            self._idle.pop().disconnect()
        self._is_checked = False


class _Subscription:
    """What Valkey publishes about writes, over a connection of its own."""

    def __init__(self, client: Any, channel: str) -> None:
        """The client must not connect anew by itself: what was published meanwhile would be missed."""
        self._client = client
        self._pubsub = client.pubsub()
        try:
            self._pubsub.subscribe(channel)
            if self._next(LONGEST_VERB_S, "subscribe") is None:
                raise redis.TimeoutError("it does not say that it will tell of writes")
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float) -> list[News]:
        message = self._next(timeout_s, "message")
        return [] if message is None else [_news_in(message)]

    def catch_up(self) -> list[News]:
        self._pubsub.ping()
        told: list[News] = []
        while (message := self._next(LONGEST_VERB_S, "message", "pong")) is not None:
            if message["type"] == "pong":
                return told
            told.append(_news_in(message))
        raise redis.TimeoutError("it gives no sign any more")

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()

    def _next(self, timeout_s: float, *kinds: str) -> Any:
        """What is told next; None when the time is over."""
        message = self._pubsub.get_message(timeout=timeout_s)
        if message is not None and message["type"] not in kinds:
            raise redis.ConnectionError(f"it tells of {message['type']}, and not of a write")
        return message


def _client_of(url: str, *, retry_count: int) -> Any:
    return redis.Redis.from_url(
        url,
        socket_timeout=LONGEST_VERB_S,
        socket_connect_timeout=LONGEST_CONNECTING_S,
        retry=Retry(NoBackoff(), retry_count, supported_errors=(redis.ConnectionError,)),
        client_name="shelflife",
    )


def _news_in(message: Any) -> News:
    return News.from_message(msgspec.msgpack.decode(message["data"], type=Message))


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


def _packed(*parts: str | bytes) -> bytes:
    """A command as Valkey reads it."""
    encoded = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded])


@lru_cache(maxsize=4096)
def _tag(tag: str) -> str:
    """A tag in short. Two that met would only drop an entry too many."""
    return hashlib.blake2b(tag.encode(), digest_size=8).hexdigest()


def _literally(text: str) -> str:
    """A text as a pattern of Valkey's that matches nothing else."""
    return "".join(f"\\{char}" if char in "*?[]^-\\" else char for char in text)
