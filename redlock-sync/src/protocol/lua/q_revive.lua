-- Queues dead tasks again, due now, as if they were new: the named task, or the oldest ones. A full server (maxmemory)
-- accepts the first write.
-- KEYS[1] due, KEYS[2] meta, KEYS[3] dead, KEYS[4] waits
-- ARGV[1] id, ARGV[2] how many of the oldest (0: the one with that id); the last argument may be that of
-- permissions.lua
-- replies the number of tasks that were queued again
-- include permissions, push, q_wake, q_task
local ids = {ARGV[1]}
if ARGV[2] ~= '0' then
  ids = redis.call('ZRANGE', KEYS[3], 0, ARGV[2] - 1)
elseif not redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  return 0
end
-- A key of another type is found before anything is written.
redis.call('ZCARD', KEYS[1])
redis.call('ZCARD', KEYS[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, id in ipairs(ids) do
  local _, version = read(redis.call('HGET', KEYS[2], id))
  redis.call('ZREM', KEYS[3], id)
  write(KEYS[2], id, 0, version + 1, 0, '0', '-', '')
  redis.call('ZADD', KEYS[1], n(now + i - 1), id)
end
if #ids > 0 then wake(KEYS[4]) end
return #ids
