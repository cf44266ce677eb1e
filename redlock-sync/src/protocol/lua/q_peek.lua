-- Shows tasks in the order in which they are due. Changes nothing.
-- KEYS[1] due or dead, KEYS[2] body, KEYS[3] meta
-- ARGV[1] how many at most, ARGV[2] `due` for those that are due now, or `all`
-- A reply carries at most 1 MiB of bodies, or one body that is larger.
-- replies a list with the server's time in us since 1970, and {id, us since 1970, state, body} for each
-- include q_task
local time = redis.call('TIME')
local now = n(time[1] * 1000000 + time[2])
local last = ARGV[2] == 'due' and now or '+inf'
local tasks = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', last, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local shown, size = {now}, 0
for i = 1, #tasks, 2 do
  local state, body = redis.call('HGET', KEYS[3], tasks[i]) or '', redis.call('HGET', KEYS[2], tasks[i]) or ''
  size = size + #body
  if size > 1048576 and i > 1 then break end
  shown[#shown + 1] = {tasks[i], tasks[i + 1], state, body}
end
return shown
