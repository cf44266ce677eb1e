-- Queues dead tasks again, due now, as if they were new: the named task, or the oldest ones. A full server (maxmemory)
-- accepts the first write.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] dead, KEYS[4] waits
-- ARGV[1] id, ARGV[2] how many of the oldest (0: the one with that id); the last argument may be that of
-- permissions.lua
-- replies the number of tasks that were queued again
-- include permissions, push, q_wake, q_task
local due, tasks, dead, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local places = {}
if ARGV[2] ~= '0' then
  places = redis.call('ZRANGE', dead, 0, ARGV[2] - 1)
else
  local place = place_of(tasks, ARGV[1])
  if not redis.call('ZSCORE', dead, place or '') then return 0 end
  places = {place}
end
-- A key of another type is found before anything is written.
redis.call('HGET', tasks, '')
redis.call('ZCARD', due)
redis.call('ZCARD', waits)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, place in ipairs(places) do
  local _, version = read(state_of(tasks, place))
  redis.call('ZREM', dead, place)
  write(tasks, place, 0, version + 1, 0, '0', '-', '')
  redis.call('ZADD', due, n(now + i - 1), place)
end
if #places > 0 then wake(waits) end
return told(#places)
