-- Takes the lock for a token if it is free. Safe to execute twice: finding its own token it says yes and never shortens the lease.
-- KEYS[1] lock, KEYS[2] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] lifetime of the fence counter in ms, ARGV[4] least fence (0 for none),
-- ARGV[5..] tickets: tokens of this process whose fate is unknown and that nobody holds
-- replies {1, fence} when the token holds the lock now,
--         {0, remaining ms (-1 without end), first 80 bytes of the value} when another does
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
local lease = tonumber(ARGV[2])
local mine = held == ARGV[1]
local free = held == false
for i = 5, #ARGV do
  if held == ARGV[i] then free = true end
end
if not mine and not free then
  return {0, redis.call('PTTL', KEYS[1]), string.sub(held, 1, 80)}
end
local stored = redis.call('GET', KEYS[2])
if mine then
  -- Also the write that a full server (maxmemory) does not refuse, before the ones that it would.
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), lease))
  if stored then return {1, stored} end
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
-- The time floor keeps fences rising on a node that lost its data. Microseconds stay exact in a double until 2255.
local now = redis.call('TIME')
local fence = math.max(tonumber(now[1]) * 1000000 + tonumber(now[2]), tonumber(ARGV[4]))
if stored then fence = math.max(fence, (tonumber(stored) or 0) + 1) end
fence = string.format('%.0f', fence)
redis.call('SET', KEYS[2], fence, 'PX', ARGV[3])
return {1, fence}
