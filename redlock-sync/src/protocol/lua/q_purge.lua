-- Removes the tasks that have been dead for longest.
-- KEYS[1] dead, KEYS[2] body, KEYS[3] meta
-- ARGV[1] how many at most; the last argument may be that of permissions.lua
-- replies the number of tasks that were removed
-- include permissions
local ids = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
-- A key of another type is found before anything is written.
redis.call('HGET', KEYS[3], '')
for _, id in ipairs(ids) do
  redis.call('HDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  redis.call('ZREM', KEYS[1], id)
end
return #ids
