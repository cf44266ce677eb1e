-- Lengthens a claim. Never shortens it, and never creates one. A full server (maxmemory) accepts the first write.
-- KEYS[1] due, KEYS[2] tasks
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] place of the task
-- replies 1, 0 another claim has the task or none has it, -1 there is no such task
-- include q_task
local state = state_of(KEYS[2], ARGV[3])
if not state then return -1 end
local _, _, _, _, holder = read(state)
if holder ~= ARGV[1] then return 0 end
local ends = redis.call('ZSCORE', KEYS[1], ARGV[3])
local time = redis.call('TIME')
local wanted = time[1] * 1000000 + time[2] + ARGV[2] * 1000
redis.call('PERSIST', KEYS[1])
if not ends or tonumber(ends) < wanted then
  redis.call('ZADD', KEYS[1], n(wanted), ARGV[3])
else
  redis.call('HSET', KEYS[2], 's:' .. id_of(ARGV[3]), state)
end
return 1
