-- Takes tasks that are due out of a queue; they are gone, whatever becomes of the caller. Executed twice it takes others.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] claims
-- ARGV[1] how many at most; the last one may be that of permissions.lua
-- replies a list with {id, us since 1970 when it was due, state, body} for each
local time = redis.call('TIME')
local now = n(time[1] * 1000000 + time[2])
local tasks = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local taken = {}
-- A key of another type is found before anything is written.
redis.call('HGET', KEYS[4], '')
for i = 1, #tasks, 2 do
  local id, state = tasks[i], redis.call('HGET', KEYS[3], tasks[i]) or ''
  local _, _, _, _, holder = read(state)
  taken[#taken + 1] = {id, tasks[i + 1], state, redis.call('HGET', KEYS[2], id) or ''}
  if holder ~= '-' then redis.call('HDEL', KEYS[4], holder) end
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
return taken
