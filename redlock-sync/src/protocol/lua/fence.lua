-- Raises the fence counter as long as the token holds the lock: to the next value, or at least to a given one. The
-- second form writes the fence back, so that a quorum's fence is monotonic. A full server (maxmemory) does not refuse
-- the first write.
-- KEYS[1] lock, KEYS[2] fence counter
-- ARGV[1] token, ARGV[2] fence to reach (0: the next), ARGV[3] ms for which the fence counter is kept after the clock
-- has reached it
-- replies {1, fence} with the value of the counter now, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
-- 2^53 - 1: larger numbers are not exact, and the counter could rise no more.
if (tonumber(redis.call('GET', KEYS[2]) or 0) or 0) >= 9007199254740991 then
  return redis.error_reply('FENCEEND the fence counter can rise no more: delete its key')
end
local now = redis.call('TIME')
local clock = now[1] * 1000000 + now[2]
local stored = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
local fence = tonumber(ARGV[2])
if fence == 0 then fence = math.max(clock, stored + 1) end
local life = ARGV[3] + math.max(0, math.floor((math.max(fence, stored) - clock) / 1000))
redis.call('PEXPIRE', KEYS[2], life)
if fence <= stored then return {1, string.format('%.0f', stored)} end
fence = string.format('%.0f', fence)
redis.call('SET', KEYS[2], fence, 'PX', life)
return {1, fence}
