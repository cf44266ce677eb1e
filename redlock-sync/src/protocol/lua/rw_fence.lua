-- Raises the fence counter as long as the token holds a read-write lock: to the next value, or at least to a given one.
-- The second form writes the fence back, so that a quorum's fence is monotonic. A reader may still be a writer on this
-- node. A full server (maxmemory) does not refuse the first write.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers
-- ARGV[1] token, ARGV[2] fence to reach (0: the next), ARGV[3] ms for which the fence counter is kept after the clock
-- has reached it, ARGV[4] `r` or `w`
-- replies {1, fence} with the value of the counter now, 0 the token does not hold it and a holder that excludes it
--         does, -1 the token does not hold it
-- include fence_counter, push, rw
local token, letter = ARGV[1], ARGV[4]
local failure = failure_of_key()
if failure then return failure end
if live(letter .. token) == 0 and live('w' .. token) == 0 then
  local by = last()
  return (is_writer(by) or by and letter == 'w') and 0 or -1
end
failure = fence_error(KEYS[3])
if failure then return failure end
return {1, raise(KEYS[3], tonumber(ARGV[2]), ARGV[3])}
