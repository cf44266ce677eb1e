-- Removes a wait from the waits of a queue. Then it notifies another wait, since only the removed wait may have been
-- notified of a task.
-- KEYS[1] waits
-- ARGV[1] the wait
-- replies 1
-- include push, q_wake
redis.call('ZREM', KEYS[1], ARGV[1])
wake(KEYS[1])
return told(1)
