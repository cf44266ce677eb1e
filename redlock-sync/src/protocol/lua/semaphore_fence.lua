-- Raises the fence counter as long as the token has its permits: to the next value, or at least to a given one. The
-- second form writes the fence back, so that a quorum's fence is monotonic. A full server (maxmemory) does not refuse
-- the first write.
-- KEYS[1] semaphore, KEYS[2] fence counter
-- ARGV[1] token, ARGV[2] fence to reach (0: the next), ARGV[3] ms for which the fence counter is kept after the clock
-- has reached it, ARGV[4] slots
-- replies {1, fence} with the value of the counter now, 0 another token has one of the slots, -1 no token has it
-- include fence_counter, push, slots
local lent, failure = read_lent(KEYS[1], in_ms(redis.call('TIME')))
if failure then return failure end
for _, slot in ipairs((slots_of(ARGV[4]))) do
  local holder = lent.tokens[slot]
  if holder ~= ARGV[1] then return holder and 0 or -1 end
end
failure = fence_error(KEYS[2])
if failure then return failure end
return {1, raise(KEYS[2], tonumber(ARGV[2]), ARGV[3])}
