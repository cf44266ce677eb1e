-- Lends free slots to a token, if it is this attempt's turn: as many as the token wants, or none. A wait with a
-- reservation gets its reserved slots. Otherwise enters the wait into the queue, where it keeps its place. Safe to
-- execute twice: if the token has its slots already, the reply is yes, and the lease is never shortened.
-- With one node, free slots first go to the waits before this one. With several, any attempt may take one (slots.lua).
-- KEYS[1] semaphore, KEYS[2] queue, KEYS[3] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] number of permits, ARGV[4] slot at which the search begins, or the slots
-- of the token's lease, ARGV[5] ms for which a slot is reserved (0: there are several nodes). A fast-path call for one
-- slot ends here.
-- ARGV[6] wait (empty: none), ARGV[7] ms for which the queue lives after a no (0: the wait leaves it), ARGV[8] fence to
-- reach (0: the next, -1: none is wanted), ARGV[9] ms for which the fence counter is kept after the clock has reached
-- it, ARGV[10] 1 if only the slot of the lease will do, ARGV[11] how many slots (with several nodes 1); the last
-- argument may be that of permissions.lua
-- replies {1, fence (0: none), slots} when they are lent to the token now; else
-- replies {0, ms, first 80 bytes of its token, place of the wait (0 none, 1 it is new, 2 it was there)}. The ms are
--         those until the first permit or reservation ends, or after which a wait that keeps the other slots counts as
--         gone.

local key, queue, token, lease = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])

-- The fast path: an attempt that asks only for one permit, while there is no wait. It does nothing if the token has a
-- permit already, if a permit has ended, or if a member is no permit. The argument of permissions.lua is one too many
-- for this path.
if not ARGV[6] and redis.call('EXISTS', queue) == 0 then
  local slot = ARGV[4]
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local all = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')
  if all.err then return all end
  if all[1] then
    local permits, at, taken = tonumber(ARGV[3]), tonumber(slot), {}
    -- The members are in order of their ends.
    local is_plain = #all < 2 * permits and tonumber(all[2]) >= now
    for i = 1, is_plain and #all or 0, 2 do
      local other, holder = string.match(all[i], '^(%d+) (.+)$')
      is_plain = is_plain and other and holder ~= token
      taken[tonumber(other or -1)] = true
    end
    while is_plain and taken[at] do at = (at + 1) % permits end
    slot = is_plain and string.format('%d', at)
  end
  if slot then
    redis.call('ZADD', key, now + lease, slot .. ' ' .. token)
    if not all[1] or redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
    return {1, '0', slot}
  end
end

-- include permissions, fence_counter, push, slots
local wait, permits, many = ARGV[6] or '', tonumber(ARGV[3]), tonumber(ARGV[11] or 1)
local is_lease, span, wanted = ARGV[10] == '1', tonumber(ARGV[5]), tonumber(ARGV[8] or -1)
local failure = wanted >= 0 and fence_error(KEYS[3])
if failure then return failure end
local now = in_ms(redis.call('TIME'))
local lent
lent, failure = read_lent(key, now)
if failure then return failure end

-- These are slots that were lent to this token in addition to those of its lease.
local left = {}
local own, reserved = {}, {}
local reservation_of_wait = wait ~= '' and RESERVED .. wait
local list, set = slots_of(ARGV[4])
for at, other in pairs(lent.tokens) do
  if other == token and (not is_lease or set[at]) then
    own[#own + 1] = at
  elseif other == token then
    left[#left + 1] = at .. ' ' .. other
    lent.tokens[at] = nil
  elseif other == reservation_of_wait then
    reserved[#reserved + 1] = at
  end
end

if not is_lease and #own ~= many then
  -- No known attempt got these slots, so this attempt does not lend them again.
  for _, slot in ipairs(own) do left[#left + 1] = slot .. ' ' .. token end
end
local gone, slots, kept = {}, nil, nil
if #own == many then
  -- This write comes before the other, since a full server accepts it and would refuse the other.
  lengthen(key, lease)
  slots = own
elseif is_lease then
  if not lent.tokens[list[1]] then slots = list end
elseif #reserved == many then
  slots = reserved
else
  local free = search(lent, permits, list[1])
  if span > 0 then gone, kept = serve(key, queue, wait, lent, free, now, span) end
  slots = not kept and free(many)
end
if not slots then
  local place = 0
  if wait ~= '' and ARGV[7] ~= '0' then
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    place = 2 - redis.call('ZADD', queue, 'NX', (last or 0) + 1, wait)
    redis.call('PEXPIRE', queue, ARGV[7])
    mark(queue, wait)
  elseif wait ~= '' then
    gone[#gone + 1] = wait
    mark(queue, wait, true)
  end
  remove(queue, gone)
  remove(key, left)
  if lent.is_stale then purge(key, now) end
  -- At this point, all slots may be reserved and none lent.
  local ms = math.min(lent.first and lent.first - now or span, kept or math.huge)
  return told({0, ms, string.sub(lent.holder or RESERVED, 1, 80), place})
end

local named = {}
for i, slot in ipairs(slots) do
  local ends = now + lease
  if lent.tokens[slot] == token then ends = math.max(ends, lent.ends[slot]) end
  redis.call('ZADD', key, ends, slot .. ' ' .. token)
  named[i] = string.format('%d', slot)
end
if wait ~= '' then
  gone[#gone + 1] = wait
  mark(queue, wait, true)
  for _, slot in ipairs(reserved) do left[#left + 1] = slot .. ' ' .. reservation_of_wait end
end
remove(queue, gone)
remove(key, left)
if lent.is_stale then purge(key, now) end
lengthen(key, lease)
return told({1, wanted < 0 and '0' or raise(KEYS[3], wanted, ARGV[9]), table.concat(named, ' ')})
