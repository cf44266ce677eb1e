-- Counts the tasks of a queue: those that wait, those that are claimed, and those whose claim is over; or the dead
-- tasks.
-- KEYS[1] due or dead
-- replies the number of tasks
return redis.call('ZCARD', KEYS[1])
