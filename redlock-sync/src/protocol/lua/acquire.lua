-- Takes the lock for a token if it is free and it is this attempt's turn, or if it was granted to this wait; else enters the wait in the
-- queue, where it keeps its place. Safe to execute twice: finding its own token it says yes and never shortens the lease.
-- On one node a free lock is for the first wait in the queue whose client listens: an attempt of another one grants it to that wait. Several nodes
-- can have different orders, which would block each other: there any attempt may take it.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] 1 if there are several nodes (may be absent); a bare call has no more: of a queue it tells only
-- that there is one
-- ARGV[4] wait (empty: none), ARGV[5] ms for which the queue lives after a no (0: the wait leaves it),
-- ARGV[6] least fence (-1: none is wanted), ARGV[7] ms for which the fence counter outlasts the clock's reaching it,
-- ARGV[8] random part of a grant, ARGV[9] span of a grant in ms, ARGV[10..] orphans: beginnings of tokens that no lease has, or
-- `!` and a whole value that may be taken over while its key has no time-to-live;
-- the last one may be that of permissions.lua
-- replies 1 or {1, fence} when the token holds the lock now; else
--         {0, remaining ms (-1 without end), first 80 bytes of the value, place of the wait (0 none, 1 it came, 2 it was there)}; without
--         a value the lock is free, but not for this attempt before that time
local key, queue, token = KEYS[1], KEYS[2], ARGV[1]
local is_bare, several = #ARGV <= 3, ARGV[3] == '1'
if is_bare and (several or redis.call('EXISTS', queue) == 0) and redis.call('SET', key, token, 'NX', 'PX', ARGV[2]) then return 1 end

local wait, least = ARGV[4] or '', tonumber(ARGV[6] or -1)
local stored = least >= 0 and redis.call('GET', KEYS[3])
-- Not by counting: at its end it could rise no more. 2^53 - 1, from where on numbers are not exact.
if stored and (tonumber(stored) or 0) >= 9007199254740991 then
  return redis.error_reply('FENCEEND the fence counter can rise no more: delete its key')
end

-- Whether it is this attempt's turn to take the free lock; else, in a pause, what is left of it.
local function is_its_turn()
  if several then return true end
  for _ = 1, 64 do
    local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
    if not first or first == wait then return true end
    local pause = string.match(first, '^%*(%d+)$')
    if pause then
      local now = redis.call('TIME')
      local left = pause - (now[1] * 1000 + math.floor(now[2] / 1000))
      -- None is longer than a second, but where the clock was set back.
      if left > 0 and left <= 1000 then return false, left end
    end
    redis.call('ZREM', queue, first)
    local heard = pause and 0 or give(key, queue, KEYS[3], first, ARGV[8], ARGV[9], '0 0', least < 0 and '0' or ARGV[7])
    if heard ~= 0 then return heard < 0 end
  end
  return true
end

local held, left = redis.pcall('GET', key), nil
if type(held) == 'table' then return held end
if held == token then
  -- Also the write that a full server (maxmemory) does not refuse, before the ones that it would.
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))
else
  local free = held and wait ~= '' and string.sub(held, 33) == ':granted:' .. wait
  for i = 10, #ARGV do
    local whole = string.sub(ARGV[i], 1, 1) == '!'
    if held and not whole and string.sub(held, 1, #ARGV[i]) == ARGV[i] then free = true end
    if held and whole and '!' .. held == ARGV[i] and redis.call('PTTL', key) == -1 then free = true end
  end
  if not held and not is_bare then
    free, left = is_its_turn()
  end
  if not free then
    local place = 0
    held = held or redis.call('GET', key)
    if wait ~= '' and ARGV[5] == '0' then
      redis.pcall('ZREM', queue, wait)
      mark(queue, wait, true)
      -- In a pause it is the one that was told to try; then the next is. The number is that of one pause (push.lua).
      if left then hint(queue, left, '0 2') end
    elseif wait ~= '' then
      local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
      place = 2 - redis.call('ZADD', queue, 'NX', (last or 0) + 1, wait)
      redis.call('PEXPIRE', queue, ARGV[5])
      mark(queue, wait)
    end
    return {0, left or held and redis.call('PTTL', key) or 0, string.sub(held or '', 1, 80), place}
  end
  redis.call('SET', key, token, 'PX', ARGV[2])
end
if wait ~= '' then
  redis.pcall('ZREM', queue, wait)
  mark(queue, wait, true)
end
if least < 0 then return 1 end
-- The time floor keeps fences rising on a node that lost its data. Microseconds stay exact in a double until 2255.
local now = redis.call('TIME')
local clock = now[1] * 1000000 + now[2]
local fence = math.max(clock, least, (tonumber(redis.call('GET', KEYS[3]) or 0) or 0) + 1)
local life = ARGV[7] + math.floor((fence - clock) / 1000)
fence = string.format('%.0f', fence)
redis.call('SET', KEYS[3], fence, 'PX', life)
return {1, fence}
