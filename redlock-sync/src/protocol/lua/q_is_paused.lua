-- Tells whether a queue is paused.
-- KEYS[1] tasks
-- replies 1 or 0
return redis.call('HGET', KEYS[1], 'paused') and 1 or 0
