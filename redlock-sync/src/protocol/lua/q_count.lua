-- Counts the tasks of a queue: those that wait, those that are claimed, and those whose claim is over. Dead ones are not counted.
-- KEYS[1] due
-- replies the number of tasks
return redis.call('ZCARD', KEYS[1])
