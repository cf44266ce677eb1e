-- Stands before all else of rw_acquire.lua: what most attempts need, which ask for nothing but the lock while no wait is there. In every other case it
-- does nothing, and the script behind it decides.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers
-- ARGV[1] `r` or `w`, ARGV[2] token, ARGV[3] lease in ms, ARGV[4] not used,
-- ARGV[5] wait, ARGV[6] not used, ARGV[7] least fence: it does nothing if a wait or a fence is named, or if there are more
-- replies 1 when the token holds the lock now
if #ARGV == 9 and ARGV[5] == '' and ARGV[7] == '-1' and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  local key, own, lease = KEYS[1], ARGV[1] .. ARGV[2], tonumber(ARGV[3])
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local holder = redis.pcall('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  if holder.err then return holder end
  local ends = tonumber(holder[2] or 0)
  -- Free and never held, or other readers are in.
  if not holder[1] or ARGV[1] == 'r' and ends >= now and string.sub(holder[1], 1, 1) == 'r' and not redis.call('ZSCORE', key, own) then
    redis.call('ZADD', key, now + lease, own)
    redis.call('PEXPIRE', key, math.max(lease, ends - now))
    if holder[1] then redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now)) end
    return 1
  end
end
