-- Removes a task, claimed or not, dead or not. On request, it removes the task only if the task has not changed since
-- the caller saw it.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] claims, KEYS[4] dead
-- ARGV[1] id, ARGV[2] its place as it was seen (empty: wherever it is now), ARGV[3] us since 1970 as they were seen,
-- ARGV[4] version as it was seen; the last argument may be that of permissions.lua
-- replies 1 removed, 0 it has changed, -1 there is no such task
-- include permissions, q_task
local due, tasks, claims, dead, id = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
-- A task that has lost its body can still be named by its place.
local place = place_of(tasks, id) or ARGV[2] ~= '' and ARGV[2]
if not place then return -1 end
local at, died = redis.call('ZSCORE', due, place), redis.call('ZSCORE', dead, place)
local _, version, _, _, holder = read(state_of(tasks, place))
if ARGV[2] ~= '' then
  if not at and not died then return -1 end
  local is_same = place == ARGV[2] and tonumber(at or died) == tonumber(ARGV[3]) and version == tonumber(ARGV[4])
  if not is_same then return 0 end
end
-- A key of another type is found before anything is written.
if holder ~= '-' then redis.call('HGET', claims, '') end
redis.call('ZREM', due, place)
redis.call('ZREM', dead, place)
redis.call('HDEL', tasks, 'b:' .. id, 's:' .. id)
forget(tasks, claims, id, holder)
return 1
