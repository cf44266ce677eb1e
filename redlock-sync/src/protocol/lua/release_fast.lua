-- Runs before the other parts of release.lua, as the fast path: a release while there is no wait. In every other case,
-- the script that follows decides. Its twin is release.lua.
-- KEYS[1] lock, KEYS[2] queue (may be absent)
-- ARGV[1] token, ARGV[2] not used; if the token is empty, it does nothing
-- ARGV[3..] if there are more arguments, it does nothing
-- replies 1 released, 5 the same where only the lock's key was named
if not ARGV[3] and ARGV[1] ~= '' and (not KEYS[2] or redis.pcall('EXISTS', KEYS[2]) == 0) then
  if redis.pcall('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
    return KEYS[2] and 1 or 5
  end
end
