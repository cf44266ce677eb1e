-- Lengthens the lease of a token that still holds a read-write lock. Never shortens it, and never creates a holder. A
-- reader that is still a writer on this node becomes a reader, and keeps the later of the two ends. A full server
-- (maxmemory) does not refuse the first write.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers; or KEYS[1] only,
-- while a cluster moves its slot: then no number is returned
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] `r` or `w`, ARGV[4] 1 with several nodes,
-- ARGV[5] `count`: return the number of waits; `check`: return 1 if a writer waits, else 0; `reserve`: if a writer
-- became a reader, reserve the lock for waiting readers
-- replies 1, or {1, number of waits}: held for at least that long now; 0 the token does not hold it and a holder that
--         excludes it does, -1 the token does not hold it
-- include push, rw
local own, former, lease, several, what = ARGV[3] .. ARGV[1], 'w' .. ARGV[1], tonumber(ARGV[2]), ARGV[4] == '1', ARGV[5]
local failure = failure_of_key()
if failure then return failure end
local ends = live(own)
local was_writer = ends == 0 and live(former) > 0
if was_writer then ends = live(former) end
if ends == 0 then
  local by = last()
  return (is_writer(by) or by and ARGV[3] == 'w') and 0 or -1
end
redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease))
redis.call('ZADD', key, math.max(ends, now + lease), own)
if was_writer then
  redis.call('ZREM', key, former)
  if what == 'reserve' and writers then reserve_for_readers(several) end
end
if not writers then return 1 end
if what == 'check' then
  local writer = first_writer(several)
  drop_gone()
  return {1, writer and '1' or '0'}
end
if what ~= 'count' then return told(1) end
local waits = are_readers_next() and -1 or 0
for _, queue in ipairs({readers, writers}) do
  local size = redis.pcall('ZCARD', queue)
  if type(size) ~= 'table' then waits = waits + size end
end
return {1, string.format('%.0f', math.max(0, waits))}
