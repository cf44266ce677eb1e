-- Runs before all other parts of rw_acquire.lua, as the fast path: an attempt that asks only for the lock, while there
-- is no wait. In every other case it does nothing, and the script that follows decides. Its twin is rw_acquire.lua.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] `r` or `w`, ARGV[4] 1 with several nodes (may be absent)
-- ARGV[5..] if there are more arguments, it does nothing
-- replies 1 when the token holds the lock now
if (ARGV[4] or '1') == '1' and not ARGV[5] and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  local key, lease = KEYS[1], tonumber(ARGV[2])
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- This is the holder that ends first.
  local holder = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if holder.err then return holder end
  local is_free = not holder[1]
  -- The lock is free, or only readers hold it and none of them has ended.
  if is_free or ARGV[3] == 'r' and tonumber(holder[2]) >= now and string.sub(holder[1], 1, 1) == 'r' then
    -- A token that is already a holder keeps its end. That end is not earlier than the time on which this attempt may
    -- rely.
    redis.call('ZADD', key, 'NX', now + lease, ARGV[3] .. ARGV[1])
    if is_free or redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, ARGV[2]) end
    return 1
  end
end
