"""What a Valkey that keeps a memory carries out: scripts by which a look and a write take one round trip each."""

import hashlib
from typing import NamedTuple

__all__ = ["FINDING", "LOOKING", "NOTING", "WRITING", "Script"]

_LOOK = """
local p, revision, shapes_asked = ARGV[1], ARGV[2], ARGV[4]
redis.call('del', p .. 'nothing')
local place_count, missing_count = tonumber(ARGV[5]), tonumber(ARGV[6])
local now = redis.call('hget', p .. 'root', 'revision') or '0'
local is_other = now ~= revision
local knowledge = is_other and (redis.call('hget', p .. 'root', 'knowledge') or '') or false
local shapes, counts, told = false, {}, {}
if shapes_asked == 'lacking' or (shapes_asked == 'held' and is_other) then
  shapes = redis.call('hkeys', p .. 'shapes:' .. ARGV[3])
end
for i = 1, is_other and place_count or missing_count do
  local found = {}
  for id in string.gmatch(redis.call('hget', p .. 'places', ARGV[6 + i]) or '', '%S+') do
    found[#found + 1] = redis.call('hget', p .. 'entries', id) or nil
  end
  told[i] = struct.pack('>BI4', 0xdd, #found) .. table.concat(found)
end
local left_count = #ARGV > 6 + place_count and redis.call('scard', p .. 'left')
for i = 7 + place_count, #ARGV do
  counts[#counts + 1] = count_tagged(p, ARGV[i], left_count)
end
return '\\149' .. cmsgpack.pack(now, knowledge, shapes, counts) .. struct.pack('>BI4', 0xdd, #told) .. table.concat(told)
"""
"""A place has the ids of what is there, and an entry is found by its id, as it is told; an id under which there is none is of one that has
left. The `del` does nothing, and is refused by one that is no primary any more: what that has may be old.

Entries are put into answers as they are: MessagePack is one value after the other, and `0xdd` and a number begin a list of so many."""

_COUNT = """
local function count_tagged(p, tag, left_count)
  local count = redis.call('scard', p .. 'tag:' .. tag)
  if count == 0 or left_count == 0 then return count end
  return count - #redis.call('sinter', p .. 'left', p .. 'tag:' .. tag)
end
"""
"""What bears a tag, but for what has left."""

_WRITE = """
local p, before, after, knowledge, channel, root = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local call, entries, filing, kinds, all_left = redis.call, p .. 'entries', p .. 'filing', p .. 'kinds', p .. 'left'
local at_places, used = p .. 'places', p .. 'used'
if (call('hget', p .. 'root', 'revision') or '0') ~= before then return false end
local capacity, most_left, taken_count = tonumber(ARGV[7]), tonumber(ARGV[8]), 12
local dropped, trimmed, old, why, places, operations = {}, {}, {}, {}, {}, {}

local function taken(count)
  local some = {}
  for i = 1, tonumber(count) do some[i] = ARGV[taken_count + i] end
  taken_count = taken_count + #some
  return some
end
local function names(of) local all = {} for name in pairs(of) do all[#all + 1] = name end return all end
local function in_parts(ids, act)
  if #ids <= 1000 then return #ids > 0 and act(ids) end
  for first = 1, #ids, 1000 do act({unpack(ids, first, math.min(first + 999, #ids))}) end
end
local function lose_shape(id)
  local _, _, _, operation, shape = unpack(cmsgpack.unpack(call('hget', filing, id)))
  operations[operation] = true
  call('hdel', p .. 'shapes:' .. operation, shape)
end
local function leave(ids, to, are_all_there)
  local has_left, by_kind, all = {}, {}, {}
  in_parts(ids, function(some)
    local leaving = {}
    for i, told in ipairs(call('hmget', entries, unpack(some))) do
      local id = some[i]
      if told and not has_left[id] then
        local kind = string.sub(told, 114, 129)
        has_left[id], leaving[#leaving + 1], to[#to + 1], places[string.sub(told, 47, 78)] = true, id, told, true
        all[#all + 1], by_kind[kind] = id, (by_kind[kind] or 0) + 1
        if by_kind[kind] == 1 then by_kind[kind .. 'of'] = id end
      elseif are_all_there and not told and call('sismember', all_left, id) == 0 then
        error('something that is remembered is not there')
      end
    end
    if #leaving > 0 then
      call('hdel', entries, unpack(leaving))
      call('sadd', all_left, unpack(leaving))
    end
  end)
  for kind, count in pairs(by_kind) do
    if #kind == 16 and call('hincrby', kinds, kind, -count) <= 0 then
      call('hdel', kinds, kind)
      lose_shape(by_kind[kind .. 'of'])
    end
  end
  return all
end
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
  in_parts(ids, function(some)
    local has_left, changed, by_tag = {}, {}, {}
    for _, how in ipairs(call('hmget', filing, unpack(some))) do
      local id, place, _, _, _, tags = unpack(cmsgpack.unpack(how))
      has_left[id], changed[place] = true, true
      for _, tag in ipairs(tags) do
        local tagged = by_tag[tag]
        if tagged then tagged[#tagged + 1] = id else by_tag[tag] = {id} end
      end
    end
    leave_places(has_left, names(changed))
    if not keeps_use then call('zrem', used, unpack(some)) end
    for tag, tagged in pairs(by_tag) do call('srem', p .. 'tag:' .. tag, unpack(tagged)) end
    call('hdel', filing, unpack(some))
    call('srem', all_left, unpack(some))
  end)
end
local function use(id)
  call('zadd', used, call('hincrby', p .. 'root', 'uses', 1), id)
end

local drop, drop_ids, noted, counted = taken(ARGV[9]), taken(ARGV[10]), taken(ARGV[11]), taken(ARGV[12])
local put_count = (#ARGV - taken_count) / 2
for i, tag in ipairs(drop) do
  local tagged = call('smembers', p .. 'tag:' .. tag)
  if #tagged > 0 then
    for _ in ipairs(leave(tagged, dropped, true)) do why[#why + 1] = i end
  end
end
if #drop_ids > 0 then
  local numbers = {}
  for i, id in ipairs(drop_ids) do numbers[id] = #drop + i end
  for _, id in ipairs(leave(drop_ids, dropped)) do why[#why + 1] = numbers[id] end
end
if put_count == 0 and #dropped == 0 then call('del', p .. 'nothing') end
for _, id in ipairs(noted) do
  if call('zscore', used, id) then use(id) end
end
for i = 1, put_count do
  local told, how, others, was = ARGV[taken_count + 2 * i - 1], ARGV[taken_count + 2 * i], '', false
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
      why[#why + 1] = 0
    else
      others = others .. rival .. ' '
    end
  end
  call('hset', at_places, place, others .. id .. ' ')
  call('hset', entries, id, told)
  call('hset', filing, id, how)
  for _, tag in ipairs(tags) do call('sadd', p .. 'tag:' .. tag, id) end
  if call('hincrby', kinds, string.sub(told, 114, 129), 1) == 1 then
    operations[operation] = true
    call('hset', p .. 'shapes:' .. operation, shape, 1)
  end
  if not was then use(id) end
  places[place], old[i] = true, was and was[1] or '\\192'
end
if capacity then
  local excess = call('hlen', entries) - capacity
  if excess > 0 then
    for _, id in ipairs(call('zrange', used, 0, excess + call('scard', all_left) - 1)) do
      if #trimmed < excess then leave({id}, trimmed) end
    end
  end
end
local left_count, tidied_count = call('scard', all_left), put_count * 4
if left_count - most_left > tidied_count then tidied_count = left_count - most_left end
if left_count > 0 and tidied_count > 0 then
  tidy(call('srandmember', all_left, tidied_count))
  left_count = call('scard', all_left)
end

call('hset', p .. 'root', 'revision', after, 'knowledge', knowledge)
local changed = names(places)
local news = {root, before, after, knowledge, changed, names(operations)}
if #changed > 100 then news = {root, before, after, '', {}, {}} end
call('publish', channel, cmsgpack.pack(news))
local counts = {}
for i, tag in ipairs(counted) do counts[i] = count_tagged(p, tag, left_count) end
local answer = {'\\149' .. cmsgpack.pack(why, counts)}
for _, list in ipairs({dropped, trimmed, old}) do
  answer[#answer + 1] = struct.pack('>BI4', 0xdd, #list)
  for _, told in ipairs(list) do answer[#answer + 1] = told end
end
return table.concat(answer)
"""
"""An entry that goes is taken from `entries` at once, where all look for it. What else is of it is put in order later, as it takes longer than
all that an eviction needs: its id is in `left` until then, and in `filing` how it was filed. A write that puts something does so for a few,
and no more than `most_left` are ever left behind.

What is known comes last. A script that fails in the middle is not undone, and what has gone by then goes too soon, which is safe. A full
Valkey carries out a write that only takes things away: it looks for room before the first command that writes, if that needs any. So that is
an `hdel`, or a `del` of nothing.

What is told of an entry has its age, its place and its kind at the same bytes always, so that none of it has to be unpacked. Those of one kind
are of one operation, and have one shape. News names the operations that have a shape more or less."""

_TAGGED = """
local p, told, seen = ARGV[1], {}, {}
for i = 2, #ARGV do
  for _, id in ipairs(redis.call('smembers', p .. 'tag:' .. ARGV[i])) do
    if not seen[id] then
      seen[id], told[#told + 1] = true, redis.call('hget', p .. 'entries', id) or nil
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


LOOKING, WRITING, FINDING, NOTING = map(Script.of, (_COUNT + _LOOK, _COUNT + _WRITE, _TAGGED, _NOTE))
