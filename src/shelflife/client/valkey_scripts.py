"""What a Valkey that keeps a memory carries out: scripts by which a look and a write take one round trip each."""

import hashlib
from typing import NamedTuple

__all__ = [
    "CHECKING",
    "CLEARING",
    "COUNTING",
    "FINDING",
    "LOOKING",
    "NOTING",
    "SWEEPING",
    "TELLING",
    "WRITING",
    "Script",
]

_LOOK = """
local p, revision, shapes_asked = string.sub(KEYS[1], 1, -5), ARGV[1], ARGV[3]
redis.call('del', p .. 'nothing')
local place_count, missing_count = tonumber(ARGV[4]), tonumber(ARGV[5])
local now = redis.call('hget', p .. 'root', 'revision') or '0'
local is_other = now ~= revision
local knowledge = is_other and (redis.call('hget', p .. 'root', 'knowledge') or '') or false
local shapes, counts, told = false, {}, {}
if shapes_asked == 'lacking' or (shapes_asked == 'held' and is_other) then
  shapes = redis.call('hkeys', p .. 'shapes:' .. ARGV[2])
end
for i = 1, now == '0' and 0 or is_other and place_count or missing_count do
  local found = {}
  for id in string.gmatch(redis.call('hget', p .. 'places', ARGV[5 + i]) or '', '%S+') do
    found[#found + 1] = redis.call('hget', p .. 'entries', id) or nil
  end
  told[i] = struct.pack('>BI4', 0xdd, #found) .. table.concat(found)
end
local left_count = #ARGV > 5 + place_count and redis.call('scard', p .. 'left')
for i = 6 + place_count, #ARGV do
  counts[#counts + 1] = count_tagged(p, ARGV[i], left_count)
end
return '\\149' .. cmsgpack.pack(now, knowledge, shapes, counts) .. struct.pack('>BI4', 0xdd, #told) .. table.concat(told)
"""
"""A place has the ids of what is there, and an entry is found by its id, as it is told; an id under which there is none is of one that has
left. What is of a root that is not there is not told. The `del` does nothing, and is refused by one that is no primary any more: what that
has may be old.

Entries are put into answers as they are: MessagePack is one value after the other, and `0xdd` and a number begin a list of so many."""

_COUNT = """
local function count_tagged(p, tag, left_count)
  local count = redis.call('scard', p .. 'tag:' .. tag)
  if count == 0 or left_count == 0 then return count end
  return count - redis.call('sintercard', 2, p .. 'left', p .. 'tag:' .. tag)
end
"""
"""What bears a tag, but for what has left."""

_WHOLE = """
local function expect(is_there)
  if not is_there then
    error('a part of what is remembered is not there: clear the memory, and let its Valkey drop nothing by itself')
  end
end
local function check_whole(p)
  expect(tonumber(redis.call('hget', p .. 'root', 'tags') or 0) == redis.call('hlen', p .. 'tags'))
end
local function tagged(p, tag)
  local ids = redis.call('smembers', p .. 'tag:' .. tag)
  expect(#ids == tonumber(redis.call('hget', p .. 'tags', tag) or 0))
  return ids
end
"""
"""A Valkey that is set so drops any key by itself. If it were one that leads from a row to its fixes, these would stay for ever. So `tags` says
how many bear each tag, and the root how many tags there are. Whatever is missing then, what would have to go is not kept in silence."""

_PUBLISH = """
local function may_publish(channel)
  return not redis.acl_check_cmd or redis.acl_check_cmd('publish', channel, '')
end
"""
"""Whether whoever asks may tell of a write. It is asked before anything is written: a script that fails at its end is not undone."""

_WRITE = """
local p, before, after, knowledge, channel, root = string.sub(KEYS[1], 1, -5), ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local call = redis.call
if (call('hget', KEYS[1], 'revision') or '0') ~= before then return false end
check_whole(p)
if not may_publish(channel) then error('its user may not publish what is written; allow that with &shelflife:*') end
local entries, filing, kinds, all_left = p .. 'entries', p .. 'filing', p .. 'kinds', p .. 'left'
local capacity, most_left, drop, drop_ids = tonumber(ARGV[6]) or math.huge, tonumber(ARGV[7]), ARGV[8], ARGV[9]
expect(before ~= '0' or call('exists', entries) == 0)
local dropped, trimmed, old, dropped_counts, places, operations = {}, {}, {}, {}, {}, {}

local function leave(ids, to, are_all_there)
  local counts, one_of = {}, {}
  for first = 1, #ids, 1000 do
    local some, leaving = #ids <= 1000 and ids or {unpack(ids, first, math.min(first + 999, #ids))}, {}
    for i, told in ipairs(call('hmget', entries, unpack(some))) do
      if told then
        local kind = string.sub(told, 114, 129)
        leaving[#leaving + 1], to[#to + 1], places[#places + 1] = some[i], told, string.sub(told, 45, 78)
        counts[kind], one_of[kind] = (counts[kind] or 0) + 1, some[i]
      elseif are_all_there then
        expect(call('sismember', all_left, some[i]) == 1)
      end
    end
    if #leaving > 0 then
      call('hdel', entries, unpack(leaving))
      call('sadd', all_left, unpack(leaving))
    end
  end
  for kind, count in pairs(counts) do
    if call('hincrby', kinds, kind, -count) <= 0 then
      local _, _, _, operation, shape = unpack(cmsgpack.unpack(call('hget', filing, one_of[kind])))
      operations[operation] = true
      call('hdel', kinds, kind)
      call('hdel', p .. 'shapes:' .. operation, shape)
    end
  end
end

for first = 1, #drop, 16 do
  leave(tagged(p, string.sub(drop, first, first + 15)), dropped, true)
  dropped_counts[#dropped_counts + 1] = #dropped
end
if drop_ids ~= '' then
  local ids = {}
  for first = 1, #drop_ids, 32 do ids[#ids + 1] = string.sub(drop_ids, first, first + 31) end
  leave(ids, dropped)
end
dropped_counts[#dropped_counts + 1] = #dropped
local put_count, left_count = (#ARGV - 11) / 2, call('scard', all_left)
if #dropped == 0 and put_count == 0 then call('del', p .. 'nothing') end

if put_count > 0 or left_count > most_left or call('hlen', entries) > capacity then
  local at_places, used = p .. 'places', p .. 'used'
  local function leave_places(has_left, changed)
    local emptied, others = {}, {}
    for i, ids in ipairs(call('hmget', at_places, unpack(changed))) do
      local staying = string.gsub(ids or '', '%S+ ', function(id) return has_left[string.sub(id, 1, -2)] and '' or id end)
      if staying == '' then emptied[#emptied + 1] = changed[i] else
        others[#others + 1], others[#others + 2] = changed[i], staying
      end
    end
    if #emptied > 0 then call('hdel', at_places, unpack(emptied)) end
    if #others > 0 then call('hset', at_places, unpack(others)) end
  end
  local function tidy(ids, keeps_use)
    for first = 1, #ids, 1000 do
      local some = {unpack(ids, first, math.min(first + 999, #ids))}
      local has_left, is_changed, changed, by_tag = {}, {}, {}, {}
      for _, how in ipairs(call('hmget', filing, unpack(some))) do
        local id, place, _, _, _, tags = unpack(cmsgpack.unpack(how))
        has_left[id] = true
        if not is_changed[place] then is_changed[place], changed[#changed + 1] = true, place end
        for _, tag in ipairs(tags) do
          local ids = by_tag[tag]
          if ids then ids[#ids + 1] = id else by_tag[tag] = {id} end
        end
      end
      leave_places(has_left, changed)
      if not keeps_use then call('zrem', used, unpack(some)) end
      for tag, ids in pairs(by_tag) do
        local gone_count = call('srem', p .. 'tag:' .. tag, unpack(ids))
        if call('hincrby', p .. 'tags', tag, -gone_count) <= 0 then call('hdel', p .. 'tags', tag) end
      end
      call('hdel', filing, unpack(some))
      call('srem', all_left, unpack(some))
    end
  end
  local function use(id)
    call('zadd', used, call('hincrby', KEYS[1], 'uses', 1), id)
  end

  for first = 1, #ARGV[10], 32 do
    local id = string.sub(ARGV[10], first, first + 31)
    if call('zscore', used, id) then use(id) end
  end
  for i = 1, put_count do
    local told, how, others, was = ARGV[10 + 2 * i], ARGV[11 + 2 * i], '', false
    local id, place, slot, operation, shape, tags = unpack(cmsgpack.unpack(how))
    for rival in string.gmatch(call('hget', at_places, place) or '', '%S+') do
      if call('hexists', entries, rival) == 0 then
        tidy({rival})
      elseif rival == id then
        was = {}
        leave({id}, was)
        tidy({id}, true)
        told = string.sub(was[1], 1, 10) .. string.sub(told, 11)
      elseif cmsgpack.unpack(call('hget', filing, rival))[3] == slot then
        leave({rival}, dropped)
      else
        others = others .. rival .. ' '
      end
    end
    call('hset', at_places, place, others .. id .. ' ')
    call('hset', entries, id, told)
    call('hset', filing, id, how)
    for _, tag in ipairs(tags) do
      call('hincrby', p .. 'tags', tag, call('sadd', p .. 'tag:' .. tag, id))
    end
    if call('hincrby', kinds, string.sub(told, 114, 129), 1) == 1 then
      operations[operation] = true
      call('hset', p .. 'shapes:' .. operation, shape, 1)
    end
    if not was then use(id) end
    places[#places + 1], old[i] = string.sub(told, 45, 78), was and was[1] or '\\192'
  end
  local excess = call('hlen', entries) - capacity
  if excess > 0 then
    for _, id in ipairs(call('zrange', used, 0, excess + call('scard', all_left) - 1)) do
      if #trimmed < excess then leave({id}, trimmed) end
    end
  end
  tidy(call('srandmember', all_left, math.max(put_count * 4, call('scard', all_left) - most_left)))
  left_count = call('scard', all_left)
end

call('hset', KEYS[1], 'revision', after, 'knowledge', knowledge, 'tags', call('hlen', p .. 'tags'))
if #places > 100 then knowledge, places, operations = '', {}, {} end
local changed = {}
for operation in pairs(operations) do changed[#changed + 1] = operation end
call('publish', channel, '\\150' .. cmsgpack.pack(root, before, after, knowledge)
  .. struct.pack('>BI4', 0xdd, #places) .. table.concat(places) .. cmsgpack.pack(changed))
local counts = {}
for first = 1, #ARGV[11], 16 do
  counts[#counts + 1] = count_tagged(p, string.sub(ARGV[11], first, first + 15), left_count)
end
local function list(all) return struct.pack('>BI4', 0xdd, #all) .. table.concat(all) end
return '\\149' .. cmsgpack.pack(dropped_counts, counts) .. list(dropped) .. list(trimmed) .. list(old)
"""
"""An entry that goes is taken from `entries` at once, where all look for it. What else is of it is put in order later, as it takes longer than
all that an eviction needs: its id is in `left` until then, and in `filing` how it was filed. A write that puts something does so for a few,
and no more than `most_left` are ever left behind. For the same reason an eviction goes through nothing that only others need.

What is known comes last. A script that fails in the middle is not undone, and what has gone by then goes too soon, which is safe. A full
Valkey carries out a write that only takes things away: it looks for room before the first command that writes, if that needs any. So that is
an `hdel`, or a `del` of nothing.

What is told of an entry has its age, its place and its kind at the same bytes always, so that none of it has to be unpacked: its place goes
into the news as it stands there. Those of one kind are of one operation, and have one shape. News names the operations that have a shape
more or less. How many had been dropped is noted after each tag, and after the ids: by that it can be told why each of them was."""

_TAGGED = """
local p, told, seen = string.sub(KEYS[1], 1, -5), {}, {}
check_whole(p)
for i = 1, #ARGV do
  for _, id in ipairs(tagged(p, ARGV[i])) do
    if not seen[id] then
      seen[id], told[#told + 1] = true, redis.call('hget', p .. 'entries', id) or nil
    end
  end
end
return struct.pack('>BI4', 0xdd, #told) .. table.concat(told)
"""

_NOTE = """
local used = string.sub(KEYS[1], 1, -5) .. 'used'
for i = 1, #ARGV do
  if redis.call('zscore', used, ARGV[i]) then
    redis.call('zadd', used, redis.call('hincrby', KEYS[1], 'uses', 1), ARGV[i])
  end
end
"""

_CLEAR = """
local p = string.sub(KEYS[1], 1, -5)
local keys, is_named = {}, {}
local function name(key)
  if not is_named[key] then is_named[key], keys[#keys + 1] = true, key end
end
for _, what in ipairs({'root', 'entries', 'filing', 'kinds', 'left', 'places', 'tags', 'used'}) do name(p .. what) end
for _, how in ipairs(redis.call('hvals', p .. 'filing')) do
  local _, _, _, operation, _, tags = unpack(cmsgpack.unpack(how))
  name(p .. 'shapes:' .. operation)
  for _, tag in ipairs(tags) do name(p .. 'tag:' .. tag) end
end
for first = 1, #keys, 1000 do
  redis.call('del', unpack(keys, first, math.min(first + 999, #keys)))
end
"""
"""All of a root, at once: what another writes meanwhile comes before it, or is decided anew. What was put is filed until nothing else of it is
left, so that all keys are found."""

_SWEEP = """
if redis.call('exists', KEYS[1]) == 0 then redis.call('del', ARGV[1]) end
"""
"""What was left of a root of which a part had been lost."""

_CHECK = """
local policy = string.match(redis.call('info', 'memory'), 'maxmemory_policy:(%S+)') or 'noeviction'
local found = redis.call('get', KEYS[1]) or ''
if found == '' and ARGV[3] == 'made' then
  redis.call('set', KEYS[1], ARGV[1])
  found = ARGV[1]
end
return {policy, found, may_publish(ARGV[2]) and 'yes' or 'no'}
"""
"""One that is full can be asked, too: it is written to only where there is nothing yet, and that is to be made."""

_TELL = """
redis.call('del', KEYS[1] .. ':nothing')
redis.call('publish', ARGV[1], ARGV[2])
"""
"""A sign to whoever listens. One that is no primary any more refuses the `del`: it could publish, and hears of no writes."""

_ADD_TO_DIARY = """
for number = 2, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[1], ARGV[number], ARGV[number + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""
"""An hour of the diary: for how long it is kept, then what happened and how often."""


class Script(NamedTuple):
    """A script, and the name under which Valkey has it once it was carried out."""

    text: str
    name: str

    @classmethod
    def of(cls, text: str) -> "Script":
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


LOOKING, WRITING = Script.of(_COUNT + _LOOK), Script.of(_COUNT + _WHOLE + _PUBLISH + _WRITE)
FINDING, NOTING, CHECKING = map(Script.of, (_WHOLE + _TAGGED, _NOTE, _PUBLISH + _CHECK))
CLEARING, SWEEPING = map(Script.of, (_CLEAR, _SWEEP))
COUNTING, TELLING = map(Script.of, (_ADD_TO_DIARY, _TELL))
