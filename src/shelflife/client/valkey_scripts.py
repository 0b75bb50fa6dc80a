"""What a Valkey that keeps a memory carries out: scripts by which a look and a write take one round trip each."""

import hashlib
from typing import NamedTuple

__all__ = ["FINDING", "LOOKING", "NOTING", "WRITING", "Script"]

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
    local left = leave(least, false, true)
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


class Script(NamedTuple):
    """A script, and the name under which Valkey has it once it was carried out."""

    text: str
    name: str

    @classmethod
    def of(cls, text: str) -> "Script":
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


LOOKING, WRITING, FINDING, NOTING = map(Script.of, (_LOOK, _WRITE, _TAGGED, _NOTE))
