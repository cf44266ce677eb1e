-- Runs before the other parts of rw_release.lua, as the fast path: a release while there is no wait. In every other
-- case, the script that follows decides. Its twin is rw_release.lua.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers
-- ARGV[1] token, ARGV[2] `r` or `w`, ARGV[3] not used, ARGV[4] own wait, ARGV[5] ms to keep it; if either of the last
-- two is given, it does nothing
-- replies 1 released, 5 the same where only the lock's key was named
local is_plain = (ARGV[4] or '') == '' and (ARGV[5] or '0') == '0'
if is_plain and (not KEYS[2] or redis.call('EXISTS', KEYS[2], KEYS[4]) == 0) then
  local left = redis.pcall('ZREM', KEYS[1], ARGV[2] .. ARGV[1])
  if left == 1 then end_with_last(KEYS[1]) end
  if left == 1 and not KEYS[2] then return 5 end
  if left ~= 0 then return left end
end
