-- Takes the lock for a token if it is free. Safe to execute twice: finding its own token it says yes and never shortens the lease.
-- Also free is a lock that stands on a ticket, or that was granted to a waiter while none was there: its envelope is still unread.
-- KEYS[1] lock, KEYS[2] fence counter, KEYS[3] wake list, KEYS[4] waiting
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] ms for which the fence counter outlasts the clock's reaching it, ARGV[4] least fence (-1: none is wanted),
-- ARGV[5] id of the waiter (empty: does not wait), ARGV[6] ms for which it goes on waiting after a no (0: it leaves),
-- ARGV[7] 1 if it was marked as waiting before, ARGV[8..] tickets: tokens that nobody holds;
-- the last one may be `check` (permissions.lua)
-- replies {1, fence (0 if none is wanted)} when the token holds the lock now,
--         {0, remaining ms (-1 without end), first 80 bytes of the value} when another does
local key, token, waiter = KEYS[1], ARGV[1], ARGV[5]
local least = tonumber(ARGV[4])
local stored = least >= 0 and redis.call('GET', KEYS[2])
-- Not by counting: at its end it could rise no more. 2^53 - 1, from where on numbers are not exact.
if stored and (tonumber(stored) or 0) >= 9007199254740991 then
  return redis.error_reply('FENCEEND the fence counter can rise no more: delete its key')
end
if not redis.call('SET', key, token, 'NX', 'PX', ARGV[2]) then
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then return held end
  if held == token then
    -- Also the write that a full server (maxmemory) does not refuse, before the ones that it would.
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))
  else
    local free = held == false
    for i = 8, #ARGV do
      if held == ARGV[i] then free = true end
    end
    local envelope = not free and redis.pcall('LINDEX', KEYS[3], 0)
    local granted = type(envelope) == 'string' and string.match(envelope, '^%d+ %d+ %d+ (.+)$')
    if granted == held then
      free = true
    elseif granted then
      -- Left of a grant whose key somebody deleted, or that was evicted: who popped it now would hold the lock beside its holder.
      redis.call('DEL', KEYS[3])
    end
    if not free then
      if waiter ~= '' then
        local wait = tonumber(ARGV[6])
        if wait > 0 then
          local now = redis.call('TIME')
          redis.call('ZADD', KEYS[4], string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + wait), waiter)
          redis.call('PEXPIRE', KEYS[4], math.max(redis.call('PTTL', KEYS[4]), wait))
        else
          redis.call('ZREM', KEYS[4], waiter)
        end
      end
      return {0, redis.call('PTTL', key), string.sub(held, 1, 80)}
    end
    redis.call('DEL', KEYS[3])
    redis.call('SET', key, token, 'PX', ARGV[2])
  end
end
if ARGV[7] == '1' then redis.pcall('ZREM', KEYS[4], waiter) end
if least < 0 then return {1, '0'} end
-- The time floor keeps fences rising on a node that lost its data. Microseconds stay exact in a double until 2255.
local now = redis.call('TIME')
local clock = now[1] * 1000000 + now[2]
local fence = math.max(clock, least, (tonumber(stored or 0) or 0) + 1)
local life = ARGV[3] + math.floor((fence - clock) / 1000)
fence = string.format('%.0f', fence)
redis.call('SET', KEYS[2], fence, 'PX', life)
return {1, fence}
