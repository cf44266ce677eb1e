-- Removes tasks that no claimant has. A task whose claim has run out is one of them.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] claims
-- ARGV[1] how many at most, ARGV[2] how many claimed tasks to skip; the last argument may be that of permissions.lua
-- replies the number of tasks that were removed, the number of tasks that stay because they are claimed, and 1 if there
--         are no others
-- include permissions, q_task
local due, tasks, claims = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now, removed, kept = time[1] * 1000000 + time[2], 0, 0
local places = redis.call('ZRANGE', due, ARGV[2], ARGV[2] + ARGV[1] - 1, 'WITHSCORES')
-- A key of another type is found before anything is written.
redis.call('HGET', tasks, '')
redis.call('HGET', claims, '')
for i = 1, #places, 2 do
  local id = id_of(places[i])
  local _, _, _, _, holder = read(state_of(tasks, places[i]))
  if holder ~= '-' and tonumber(places[i + 1]) > now then
    kept = kept + 1
  else
    forget(tasks, claims, id, holder)
    drop(due, tasks, places[i])
    removed = removed + 1
  end
end
return {removed, kept, #places < 2 * ARGV[1] and 1 or 0}
