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
from shelflife.client.remote import LONGEST_CONNECTING_S, LONGEST_VERB_S, Look, RemoteStore, Told
from shelflife.client.stores import StoreError, Write, Written
from shelflife.extras import needing

with needing("redis"):
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

__all__ = ["ValkeyStore"]

_FORMAT = 2
_SAFE_POLICIES = ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl")
"""With any other Valkey drops keys by itself when it is full, and what leads to an entry could go before the entry does."""

_LOOK = """
local p, revision = ARGV[1], ARGV[2]
redis.call('del', p .. 'nothing')
local place_count, missing_count = tonumber(ARGV[5]), tonumber(ARGV[6])
local now = redis.call('hget', p .. 'root', 'revision') or '0'
local is_other = now ~= revision
local knowledge = is_other and (redis.call('hget', p .. 'root', 'knowledge') or '') or false
local shapes, counts, told = false, {}, {}
if ARGV[3] ~= '' and (is_other or ARGV[4] == '1') then
  shapes = redis.call('hkeys', p .. 'shapes:' .. ARGV[3])
end
for i = 1, is_other and place_count or missing_count do
  local found = {}
  for id in string.gmatch(redis.call('hget', p .. 'places', ARGV[6 + i]) or '', '%S+') do
    found[#found + 1] = redis.call('hget', p .. 'entries', id)
  end
  told[i] = struct.pack('>BI4', 0xdd, #found) .. table.concat(found)
end
for i = 7 + place_count, #ARGV do
  counts[#counts + 1] = redis.call('scard', p .. 'tag:' .. ARGV[i])
end
return '\\149' .. cmsgpack.pack(now, knowledge, shapes, counts) .. struct.pack('>BI4', 0xdd, #told) .. table.concat(told)
"""
"""A place has the ids of what is there, and an entry is found by its id, as it is filed. The `del` does nothing, and is refused by one that
is no primary any more: what that has may be old.

Entries are put into answers as they are: MessagePack is one value after the other, and `0xdd` and a number begin a list of so many."""

_WRITE = """
local p, before, after, knowledge, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if (redis.call('hget', p .. 'root', 'revision') or '0') ~= before then return false end
local write = cmsgpack.unpack(ARGV[6])
local call, entries, at_places, used = redis.call, p .. 'entries', p .. 'places', p .. 'used'
local why, dropped, trimmed, ages, old, places, operations = {}, {}, {}, {}, {}, {}, {}

local function names(of) local all = {} for name in pairs(of) do all[#all + 1] = name end return all end
local function leave_places(left, changed)
  local emptied, others = {}, {}
  for i, ids in ipairs(call('hmget', at_places, unpack(changed))) do
    local staying = #ids == 33 and '' or string.gsub(ids, '%S+ ', function(id) return left[string.sub(id, 1, -2)] and '' or id end)
    if staying == '' then emptied[#emptied + 1] = changed[i] else
      others[#others + 1], others[#others + 2] = changed[i], staying
    end
  end
  if #emptied > 0 then call('hdel', at_places, unpack(emptied)) end
  if #others > 0 then call('hset', at_places, unpack(others)) end
end
local function leave(ids, keeps_use, are_all_there)
  local left = {}
  for first = 1, #ids, 1000 do
    local some = #ids <= 1000 and ids or {unpack(ids, first, math.min(first + 999, #ids))}
    local gone, changed, by_tag, by_shape = {}, {}, {}, {}
    for i, entry in ipairs(call('hmget', entries, unpack(some))) do
      local id = some[i]
      if entry and not left[id] then
        local _, _, _, place, _, operation, shape, tags = unpack(cmsgpack.unpack(entry))
        left[id], gone[#gone + 1], changed[place] = entry, id, true
        places[place], operations[operation] = true, true
        for _, tag in ipairs(tags) do
          local tagged = by_tag[tag]
          if tagged then tagged[#tagged + 1] = id else by_tag[tag] = {id} end
        end
        local shapes = by_shape[operation] or {}
        by_shape[operation], shapes[shape] = shapes, (shapes[shape] or 0) + 1
      elseif are_all_there and not entry then
        error('something that is remembered is not there')
      end
    end
    if #gone > 0 then
      call('hdel', entries, unpack(gone))
      leave_places(left, names(changed))
      if not keeps_use then call('zrem', used, unpack(gone)) end
    end
    for tag, tagged in pairs(by_tag) do call('srem', p .. 'tag:' .. tag, unpack(tagged)) end
    for operation, shapes in pairs(by_shape) do
      for shape, count in pairs(shapes) do
        if call('hincrby', p .. 'shapes:' .. operation, shape, -count) <= 0 then
          call('hdel', p .. 'shapes:' .. operation, shape)
        end
      end
    end
  end
  return left
end
local function drop(ids, reasons, are_all_there)
  local left = leave(ids, false, are_all_there)
  for i, id in ipairs(ids) do
    if left[id] then why[#why + 1], dropped[#dropped + 1], left[id] = reasons[i], left[id], nil end
  end
end
local function use(id)
  call('zadd', used, call('hincrby', p .. 'root', 'uses', 1), id)
end

local doomed, reasons, seen = {}, {}, {}
for i, tag in ipairs(write.drop) do
  for _, id in ipairs(call('smembers', p .. 'tag:' .. tag)) do
    if not seen[id] then seen[id], doomed[#doomed + 1], reasons[#reasons + 1] = true, id, i end
  end
end
drop(doomed, reasons, true)
reasons = {}
for i in ipairs(write.drop_ids) do reasons[i] = #write.drop + i end
drop(write.drop_ids, reasons)
for _, id in ipairs(write.used) do
  if call('zscore', used, id) then use(id) end
end
for i, put in ipairs(write.put) do
  local id, age, _, place, slot, operation, shape, tags = unpack(put)
  local others, was = '', false
  for rival in string.gmatch(call('hget', at_places, place) or '', '%S+') do
    if rival == id then
      was = leave({id}, true)[id]
      age = cmsgpack.unpack(was)[2]
      put[2] = age
    elseif cmsgpack.unpack(call('hget', entries, rival))[5] == slot then
      drop({rival}, {0})
    else
      others = others .. rival .. ' '
    end
  end
  call('hset', at_places, place, others .. id .. ' ')
  call('hset', entries, id, cmsgpack.pack(put))
  for _, tag in ipairs(tags) do call('sadd', p .. 'tag:' .. tag, id) end
  call('hincrby', p .. 'shapes:' .. operation, shape, 1)
  if not was then use(id) end
  places[place], operations[operation] = true, true
  ages[i], old[i] = age, was or '\\192'
end
if write.capacity >= 0 then
  local excess = call('zcard', used) - write.capacity
  if excess > 0 then
    local least = call('zrange', used, 0, excess - 1)
    local left = leave(least)
    for i, id in ipairs(least) do trimmed[i] = left[id] end
  end
end
call('hset', p .. 'root', 'revision', after, 'knowledge', knowledge)
local changed = names(places)
local news = {write.root, before, after, knowledge, changed, names(operations)}
if #changed > 100 then news = {write.root, before, after, '', {}, {}} end
call('publish', channel, cmsgpack.pack(news))
local counts = {}
for i, tag in ipairs(write.counted) do counts[i] = call('scard', p .. 'tag:' .. tag) end
local function list(of) return struct.pack('>BI4', 0xdd, #of) .. table.concat(of) end
return '\\150' .. cmsgpack.pack(why, ages, counts) .. list(dropped) .. list(trimmed) .. list(old)
"""
"""What is known comes last. A script that fails in the middle is not undone, and what has gone by then goes too soon, which is safe. Where
but one entry is at a place, that is empty when the entry leaves: an id and a space are 33 characters."""

_TAGGED = """
local p, told, seen = ARGV[1], {}, {}
for i = 2, #ARGV do
  for _, id in ipairs(redis.call('smembers', p .. 'tag:' .. ARGV[i])) do
    if not seen[id] then
      seen[id], told[#told + 1] = true, redis.call('hget', p .. 'entries', id)
    end
  end
end
return struct.pack('>BI4', 0xdd, #told) .. table.concat(told)
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


class _Filed(NamedTuple):
    """An entry as it is filed, as a list."""

    id: str
    learned_at: str
    json: str
    """As a text: the scripts' reader does not know bytes."""

    place: str
    slot: str
    operation: str
    shape: str
    tags: list[str]

    @property
    def entry(self) -> Entry:
        entry = _decode_entry(self.json)
        if entry.learned_at != (learned_at := float(self.learned_at)):
            entry = msgspec.structs.replace(entry, learned_at=learned_at)
        # they are asked for next, and cost a digest each
        vars(entry)["id"], vars(entry)["place"] = self.id, self.place
        return entry


_Looked = tuple[str, str | Literal[False], list[str] | Literal[False], list[int], list[list[_Filed]]]
_Written = tuple[list[int], list[str], list[int], list[_Filed], list[_Filed], list[_Filed | None]]

_encode = msgspec.json.Encoder().encode
_decode_looked = msgspec.msgpack.Decoder(_Looked).decode
_decode_written = msgspec.msgpack.Decoder(_Written).decode
_decode_filed = msgspec.msgpack.Decoder(_Filed).decode
_decode_all_filed = msgspec.msgpack.Decoder(list[_Filed]).decode
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
            self._client.sadd(
                self._roots, root
            )  # before anything is there: what is in no list could not be found
        drop, drop_ids = tuple(write.drop), tuple(write.drop_ids)
        put = [
            _Filed(
                one.entry.id,
                repr(one.entry.learned_at),
                _encode(one.entry).decode(),
                one.entry.place,
                one.slot,
                one.entry.operation,
                _encode(one.entry.condition.shape).decode(),
                sorted({*map(_tag, one.tags)}),
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
        numbers, ages, counts, dropped, trimmed, old = _decode_written(told)
        why = ("", *drop, *drop_ids)
        left = [(filed.entry, why[number]) for filed, number in zip(dropped, numbers, strict=True)]
        written = Written(left, [filed.entry for filed in trimmed], [])
        for filed, age, before in zip(write.put, ages, old, strict=True):
            entry = msgspec.structs.replace(filed.entry, learned_at=float(age))
            if before is None or entry.renews(before.entry):
                written.stored.append(entry)
        return written, counts

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        found = _decode_all_filed(self._run(_FINDING, root, *map(_tag, tags)))
        return [filed.entry for filed in found]

    def _entries(self) -> Iterator[Entry]:
        self._check()
        for root in sorted(self._client.smembers(self._roots)):
            found = self._client.hscan_iter(f"{self._prefix(root.decode())}entries", count=1000)
            yield from (_decode_filed(filed).entry for _, filed in found)

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


@lru_cache(maxsize=4096)
def _tag(tag: str) -> str:
    """A tag in short. Two that met would only drop an entry too many."""
    return hashlib.blake2b(tag.encode(), digest_size=8).hexdigest()


def _literally(text: str) -> str:
    """A text as a pattern of Valkey's that matches nothing else."""
    return "".join(f"\\{char}" if char in "*?[]^-\\" else char for char in text)
