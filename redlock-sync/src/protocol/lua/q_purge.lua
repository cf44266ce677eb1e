-- Removes the tasks that have been dead for longest.
-- KEYS[1] dead, KEYS[2] tasks
-- ARGV[1] how many at most; the last argument may be that of permissions.lua
-- replies the number of tasks that were removed
-- include permissions, q_task
local places = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
-- A key of another type is found before anything is written.
redis.call('HGET', KEYS[2], '')
for _, place in ipairs(places) do drop(KEYS[1], KEYS[2], place) end
return #places
