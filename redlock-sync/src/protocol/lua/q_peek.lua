-- Shows tasks in the order in which they are due. Changes nothing.
-- KEYS[1] due or dead, KEYS[2] tasks
-- ARGV[1] how many at most, ARGV[2] `due` for those that are due now, or `all`
-- A reply carries at most 1 MiB of bodies, or one body that is larger.
-- replies a list with the server's time in us since 1970, and {place, us since 1970, state, digits and body} for each
-- include q_task
local time = redis.call('TIME')
local now = n(time[1] * 1000000 + time[2])
local last = ARGV[2] == 'due' and now or '+inf'
local places = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', last, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local shown, size = {now}, 0
for i = 1, #places, 2 do
  local text = text_of(KEYS[2], places[i]) or ''
  size = size + #text
  if size > 1048576 and i > 1 then break end
  shown[#shown + 1] = {places[i], places[i + 1], state_of(KEYS[2], places[i]) or '', text}
end
return shown
