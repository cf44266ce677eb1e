-- Raises the fence counter as long as the token holds the lock: to the next value, or at least to a given one. The
-- second form writes the fence back, so that a quorum's fence is monotonic. A full server (maxmemory) does not refuse
-- the first write.
-- KEYS[1] lock, KEYS[2] fence counter
-- ARGV[1] token, ARGV[2] fence to reach (0: the next), ARGV[3] ms for which the fence counter is kept after the clock
-- has reached it
-- replies {1, fence} with the value of the counter now, 0 another token holds the lock, -1 there is no key
-- include fence_counter
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
local failure = fence_error(KEYS[2])
if failure then return failure end
return {1, raise(KEYS[2], tonumber(ARGV[2]), ARGV[3])}
