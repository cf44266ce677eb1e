-- Pauses a queue, or resumes it: then it wakes a wait, whose claim wakes the next one. While a queue is paused, no task
-- is claimed or popped. A full server (maxmemory) accepts the first write.
-- KEYS[1] tasks, KEYS[2] waits
-- ARGV[1] `pause` or `resume`; the last argument may be that of permissions.lua
-- replies 1, 0 it was paused already, or it was not paused
-- include permissions, push, q_wake
redis.call('ZCARD', KEYS[2])
redis.call('HDEL', KEYS[1], '')
if ARGV[1] == 'pause' then return redis.call('HSET', KEYS[1], 'paused', '1') end
if redis.call('HDEL', KEYS[1], 'paused') == 0 then return 0 end
wake(KEYS[2])
return told(1)
