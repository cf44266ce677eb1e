-- Runs before the other parts of semaphore_release.lua, as the fast path: the release of the only slot of a lease,
-- while there is no wait. If the token does not have that slot, the script that follows decides. Its twin is
-- semaphore_release.lua.
-- KEYS[1] semaphore, KEYS[2] queue (may be absent)
-- ARGV[1] token, ARGV[2] its slots, ARGV[3] not used, ARGV[4] not used
-- ARGV[5..] if there are more arguments, it does nothing
-- replies 1 given up, 5 the same where only the semaphore's key was named
if not ARGV[5] and (not KEYS[2] or redis.call('EXISTS', KEYS[2]) == 0) then
  local left = redis.pcall('ZREM', KEYS[1], ARGV[2] .. ' ' .. ARGV[1])
  if left == 1 then end_with_last(KEYS[1]) end
  if left == 1 and not KEYS[2] then return 5 end
  if left ~= 0 then return left end
end
