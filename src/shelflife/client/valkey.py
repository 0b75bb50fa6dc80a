"""A store in Valkey or Redis: shared by agents on any number of machines. It needs the extra `redis`.

A write is one script, which Valkey carries out whole; a look is another. All that belongs to one root is under keys with one hash tag.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.near import Message, News
from shelflife.client.remote import LONGEST_CONNECTING_S, LONGEST_VERB_S, Look, RemoteStore, Told
from shelflife.client.stores import StoreError, Write, Written
from shelflife.extras import needing

with needing("redis"):
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

__all__ = ["ValkeyStore"]

_FORMAT = 1
_SAFE_POLICIES = ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl")
"""With any other Valkey drops keys by itself when it is full, and what leads to an entry could go before the entry does."""

_LOOK = """
local p, revision = ARGV[1], ARGV[2]
redis.call('del', p .. 'nothing')
local place_count, missing_count = tonumber(ARGV[5]), tonumber(ARGV[6])
local now = redis.call('hget', p .. 'root', 'revision') or '0'
local is_other = now ~= revision
local told = {now, is_other and (redis.call('hget', p .. 'root', 'knowledge') or '') or false, false, {}, {}}
if ARGV[3] ~= '' and (is_other or ARGV[4] == '1') then
  told[3] = redis.call('hkeys', p .. 'shapes:' .. ARGV[3])
end
for i = 1, is_other and place_count or missing_count do
  told[4][i] = redis.call('hgetall', p .. 'place:' .. ARGV[6 + i])
end
for i = 7 + place_count, #ARGV do
  told[5][#told[5] + 1] = redis.call('scard', p .. 'tag:' .. ARGV[i])
end
return cmsgpack.pack(told)
"""
"""An entry is at its place as its age and its JSON, by its id. The `del` does nothing, and is refused by one that is no primary any more:
what that has may be old."""

_WRITE = """
local p, before, after, knowledge, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local write = cmsgpack.unpack(ARGV[6])
local function key(name) return p .. name end
if (redis.call('hget', key('root'), 'revision') or '0') ~= before then return false end
local dropped, trimmed, stored, places, operations = {}, {}, {}, {}, {}

local function note(filed)
  places[filed[1]], operations[filed[3]] = true, true
end
local function leave(ids, keeps_use, are_all_filed)
  local left = {}
  for first = 1, #ids, 1000 do
    local some = {unpack(ids, first, math.min(first + 999, #ids))}
    local found, gone, by_tag, by_shape = redis.call('hmget', key('filed'), unpack(some)), {}, {}, {}
    for i, id in ipairs(some) do
      if are_all_filed and not found[i] then error('something that is remembered is not filed') end
      if found[i] and not left[id] then
        local filed = cmsgpack.unpack(found[i])
        gone[#gone + 1] = id
        left[id] = {redis.call('hget', key('place:') .. filed[1], id), filed[1]}
        redis.call('hdel', key('place:') .. filed[1], id)
        for _, tag in ipairs(filed[5]) do
          by_tag[tag] = by_tag[tag] or {}
          table.insert(by_tag[tag], id)
        end
        by_shape[filed[3]] = by_shape[filed[3]] or {}
        by_shape[filed[3]][filed[4]] = (by_shape[filed[3]][filed[4]] or 0) + 1
        note(filed)
      end
    end
    if #gone > 0 then
      redis.call('hdel', key('filed'), unpack(gone))
      if not keeps_use then redis.call('zrem', key('used'), unpack(gone)) end
    end
    for tag, tagged in pairs(by_tag) do redis.call('srem', key('tag:') .. tag, unpack(tagged)) end
    for operation, shapes in pairs(by_shape) do
      for shape, count in pairs(shapes) do
        if redis.call('hincrby', key('shapes:') .. operation, shape, -count) <= 0 then
          redis.call('hdel', key('shapes:') .. operation, shape)
        end
      end
    end
  end
  return left
end
local function use(id)
  redis.call('zadd', key('used'), redis.call('hincrby', key('root'), 'uses', 1), id)
end

for i, tag in ipairs(write.drop) do
  for id, entry in pairs(leave(redis.call('smembers', key('tag:') .. tag), false, true)) do
    dropped[#dropped + 1] = {i, id, entry[1], entry[2]}
  end
end
local left = leave(write.drop_ids)
for i, id in ipairs(write.drop_ids) do
  if left[id] then dropped[#dropped + 1] = {#write.drop + i, id, left[id][1], left[id][2]} end
  left[id] = nil
end
for _, id in ipairs(write.used) do
  if redis.call('zscore', key('used'), id) then use(id) end
end
for i, put in ipairs(write.put) do
  local id, age, json, filed = put[1], put[2], put[3], put[4]
  local old = false
  for _, rival in ipairs(redis.call('hkeys', key('place:') .. filed[1])) do
    local other = cmsgpack.unpack(redis.call('hget', key('filed'), rival))
    if rival == id then
      old = leave({id}, true)[id][1]
      age = string.match(old, '^%S+')
    elseif other[2] == filed[2] then
      dropped[#dropped + 1] = {0, rival, leave({rival})[rival][1], filed[1]}
    end
  end
  redis.call('hset', key('place:') .. filed[1], id, age .. ' ' .. json)
  redis.call('hset', key('filed'), id, cmsgpack.pack(filed))
  for _, tag in ipairs(filed[5]) do redis.call('sadd', key('tag:') .. tag, id) end
  redis.call('hincrby', key('shapes:') .. filed[3], filed[4], 1)
  if not old then use(id) end
  note(filed)
  stored[i] = {age, old}
end
if write.capacity >= 0 then
  local excess = redis.call('zcard', key('used')) - write.capacity
  if excess > 0 then
    local least = redis.call('zrange', key('used'), 0, excess - 1)
    local left = leave(least)
    for _, id in ipairs(least) do trimmed[#trimmed + 1] = {id, left[id][1], left[id][2]} end
  end
end
redis.call('hset', key('root'), 'revision', after, 'knowledge', knowledge)
local function names(of) local all = {} for name in pairs(of) do all[#all + 1] = name end return all end
local changed = names(places)
local news = {write.root, before, after, knowledge, changed, names(operations)}
if #changed > 100 then news = {write.root, before, after, '', {}, {}} end
redis.call('publish', channel, cmsgpack.pack(news))
local counts = {}
for i, tag in ipairs(write.counted) do counts[i] = redis.call('scard', key('tag:') .. tag) end
return cmsgpack.pack({dropped, trimmed, stored, counts})
"""

"""What is known comes last. A script that fails in the middle is not undone, and what has gone by then goes too soon, which is safe."""

_TAGGED = """
local p, told, seen = ARGV[1], {}, {}
for i = 2, #ARGV do
  for _, id in ipairs(redis.call('smembers', p .. 'tag:' .. ARGV[i])) do
    if not seen[id] then
      seen[id] = true
      local filed = cmsgpack.unpack(redis.call('hget', p .. 'filed', id))
      told[#told + 1] = {id, redis.call('hget', p .. 'place:' .. filed[1], id)}
    end
  end
end
return told
"""

_NOTE = """
local p = ARGV[1]
for i = 2, #ARGV do
  if redis.call('zscore', p .. 'used', ARGV[i]) then
    redis.call('zadd', p .. 'used', redis.call('hincrby', p .. 'root', 'uses', 1), ARGV[i])
  end
end
"""


class _Script(NamedTuple):
    """A script, and the name under which Valkey has it once it was carried out."""

    text: str
    name: str

    @classmethod
    def of(cls, text: str) -> "_Script":
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_LOOKING, _WRITING, _FINDING, _NOTING = map(_Script.of, (_LOOK, _WRITE, _TAGGED, _NOTE))

_Looked = tuple[str, str | Literal[False], list[str] | Literal[False], list[list[str]], list[int]]
_Dropped = tuple[int, str, str, str]
_Stored = tuple[str, str | Literal[False]]
_Written = tuple[list[_Dropped], list[tuple[str, str, str]], list[_Stored], list[int]]

_encode = msgspec.json.Encoder().encode
_decode_looked = msgspec.msgpack.Decoder(_Looked).decode
_decode_written = msgspec.msgpack.Decoder(_Written).decode
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

    def _run(self, script: _Script, root: Root, *values: str | bytes) -> Any:
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
        lacks, counts = "1" if look.lacks_shapes else "0", (str(len(places)), str(len(look.missing)))
        asked = (str(look.revision), look.operation or "", lacks, *counts, *places, *map(_tag, look.tags))
        told = self._run(_LOOKING, look.root, *asked)
        revision, knowledge, shapes, found, counted = _decode_looked(told)
        return Told(
            int(revision),
            None if knowledge is False else knowledge.encode(),
            None if shapes is False else tuple(map(_decode_shape, sorted(shapes))),
            {place: _entries_in(pairs, place) for place, pairs in zip(places, found, strict=False)},
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
            self._client.sadd(
                self._roots, root
            )  # before anything is there: what is in no list could not be found
        drop, drop_ids = tuple(write.drop), tuple(write.drop_ids)
        put = [
            (
                one.entry.id,
                repr(one.entry.learned_at),
                _encode(one.entry).decode(),  # as a text: the script's reader does not know bytes
                (
                    one.entry.place,
                    one.slot,
                    one.entry.operation,
                    _encode(one.entry.condition.shape).decode(),
                    sorted({*map(_tag, one.tags)}),
                ),
            )
            for one in write.put
        ]
        message = {
            "root": root,
            "drop": [*map(_tag, drop)],
            "drop_ids": drop_ids,
            "used": used,
            "put": put,
            "counted": [*map(_tag, counted)],
            "capacity": -1 if write.capacity is None else write.capacity,
        }
        packed = msgspec.msgpack.encode(message)
        values = str(revision), str(new_revision), _encode(write.knowledge), self._news, packed
        told = self._run(_WRITING, root, *values)
        if told is None:
            return None
        dropped, trimmed, stored, counts = _decode_written(told)
        why = ("", *drop, *drop_ids)
        written = Written(
            [(_entry(id, entry, place), why[number]) for number, id, entry, place in dropped],
            [_entry(*one) for one in trimmed],
            [],
        )
        for filed, (age, old) in zip(write.put, stored, strict=True):
            before = None if old is False else _entry(filed.entry.id, old)
            entry = msgspec.structs.replace(filed.entry, learned_at=float(age))
            if before is None or entry.renews(before):
                written.stored.append(entry)
        return written, counts

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        found = self._run(_FINDING, root, *map(_tag, tags))
        return [_entry(id.decode(), entry.decode()) for id, entry in found]

    def _entries(self) -> Iterator[Entry]:
        self._check()
        for root in sorted(self._client.smembers(self._roots)):
            prefix = self._prefix(root.decode())
            for key in self._client.scan_iter(f"{_literally(prefix)}place:*", count=1000):
                found = self._client.hgetall(key).items()
                yield from (_entry(id.decode(), entry.decode()) for id, entry in found)

    def _note(self, root: Root, used: Sequence[str]) -> None:
        self._run(_NOTING, root, *used)

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


def _packed(*parts: str | bytes) -> bytes:
    """A command as Valkey reads it."""
    encoded = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded])


def _entries_in(pairs: Iterable[str], place: str) -> list[Entry]:
    each = iter(pairs)
    return [_entry(id, entry, place) for id, entry in zip(each, each, strict=True)]


def _entry(id: str, stored: str, place: str | None = None) -> Entry:
    age, _, encoded = stored.partition(" ")
    entry = _decode_entry(encoded)
    if entry.learned_at != (learned_at := float(age)):
        entry = msgspec.structs.replace(entry, learned_at=learned_at)
    vars(entry)["id"] = id  # it is asked for next, and costs three digests
    if place is not None:
        vars(entry)["place"] = place
    return entry


@lru_cache(maxsize=4096)
def _tag(tag: str) -> str:
    """A tag in short. Two that met would only drop an entry too many."""
    return hashlib.blake2b(tag.encode(), digest_size=8).hexdigest()


def _literally(text: str) -> str:
    """A text as a pattern of Valkey's that matches nothing else."""
    return "".join(f"\\{char}" if char in "*?[]^-\\" else char for char in text)
