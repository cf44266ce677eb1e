-- Removes a wait from the waits of a queue. Another wait is told to claim, since a task may have been announced to this
-- one only.
-- KEYS[1] waits
-- ARGV[1] the wait
-- replies 1
redis.call('ZREM', KEYS[1], ARGV[1])
wake(KEYS[1])
return 1
