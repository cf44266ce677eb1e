-- Takes a wait out of the queue of waits. Another one is told to look, since a task may have been announced to this one alone.
-- KEYS[1] waits
-- ARGV[1] the wait
-- replies 1
redis.call('ZREM', KEYS[1], ARGV[1])
wake(KEYS[1])
return 1
