-- Lends a free slot to a token if it is this attempt's turn, or the slot that is reserved for its wait; else enters the wait in the queue, where it
-- keeps its place. Safe to execute twice: finding its own token it says yes and never shortens the lease.
-- On one node the free slots are first for the waits before this one; on several any attempt may take one (slots.lua).
-- KEYS[1] semaphore, KEYS[2] queue, KEYS[3] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] number of permits, ARGV[4] slot at which the search begins, ARGV[5] 1 if that is the slot of the
-- token's lease, and no other will do, ARGV[6] 1 if there are several nodes, ARGV[7] ms for which a slot is reserved, ARGV[8] wait (empty: none), ARGV[9] ms for which
-- the queue lives after a no (0: the wait leaves it), ARGV[10] fence to reach (0: the next, -1: none is wanted), ARGV[11] ms for which the fence counter
-- outlasts the clock's reaching it, ARGV[12..] orphans: beginnings of tokens that no lease has; the last one may be that of permissions.lua
-- replies {1, fence (0: none), slot} when the slot is lent to the token now; else {0, remaining ms of the permit that ends first, first 80 bytes of its
--         token, place of the wait (0 none, 1 it came, 2 it was there)}
local key, queue, token, wait = KEYS[1], KEYS[2], ARGV[1], ARGV[8]
local lease, permits, first = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local is_lease, several = ARGV[5] == '1', ARGV[6] == '1'
local span, wanted = tonumber(ARGV[7]), tonumber(ARGV[10])
local trouble = wanted >= 0 and ended(KEYS[3])
if trouble then return trouble end
local time = redis.call('TIME')
local now = in_ms(time)
local lent
lent, trouble = look(key, now)
if trouble then return trouble end

-- Tokens of which no lease is left, and what was lent to this token beside the slot that its lease has.
local left = {}
local slot, is_own
local place_of_wait = wait ~= '' and RESERVED .. wait
for at, other in pairs(lent.tokens) do
  local is_left = false
  for i = 12, #ARGV do is_left = is_left or string.sub(other, 1, #ARGV[i]) == ARGV[i] end
  if other == token and (not is_lease or at == first) then
    slot, is_own = at, true
  elseif other == token or is_left then
    left[#left + 1] = at .. ' ' .. other
    lent.tokens[at] = nil
  elseif other == place_of_wait and not is_own then
    slot = at
  end
end

local gone = {}
if is_own then
  -- Also the write that a full server does not refuse, before the one that it would.
  lengthen(key, lease)
elseif not slot then
  local free = search(lent, permits, first, is_lease and 1 or permits)
  if not several then gone = serve(key, queue, wait, lent, free, now, span, several) end
  slot = free()
end
if not slot then
  local place = 0
  if wait ~= '' and ARGV[9] ~= '0' then
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    place = 2 - redis.call('ZADD', queue, 'NX', (last or 0) + 1, wait)
    redis.call('PEXPIRE', queue, ARGV[9])
  elseif wait ~= '' then
    gone[#gone + 1] = wait
  end
  remove(queue, gone)
  remove(key, left)
  if lent.is_stale then purge(key, now) end
  -- All may be reserved by now, and nothing lent.
  return {0, lent.first and lent.first - now or span, string.sub(lent.holder or RESERVED, 1, 80), place}
end

local ends = now + lease
if is_own then ends = math.max(ends, lent.ends[slot]) end
redis.call('ZADD', key, ends, slot .. ' ' .. token)
if wait ~= '' then
  gone[#gone + 1] = wait
  left[#left + 1] = slot .. ' ' .. place_of_wait
end
remove(queue, gone)
remove(key, left)
if lent.is_stale then purge(key, now) end
lengthen(key, lease)
return {1, wanted < 0 and '0' or raise(KEYS[3], time, wanted, ARGV[11]), string.format('%d', slot)}
