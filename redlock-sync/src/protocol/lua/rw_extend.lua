-- Lengthens the lease of a token that still holds a read-write lock; never shortens it, never makes a holder. Tells how many wait. The first write is
-- one that a full server (maxmemory) does not refuse.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers
-- ARGV[1] `r` or `w`, ARGV[2] token, ARGV[3] lease in ms, ARGV[4] 1 if the number of waits is wanted
-- replies 1, or {1, number of waits}: held for at least that long now; 0 the token does not hold it and others that exclude it do, -1 it does not
--         hold it
local own, lease = ARGV[1] .. ARGV[2], tonumber(ARGV[3])
local found = redis.pcall('ZSCORE', key, own)
if type(found) == 'table' then return found end
local ends = live(own)
if ends == 0 then
  local by = last()
  return (is_writer(by) or by and ARGV[1] == 'w') and 0 or -1
end
if ends < now + lease then
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease))
  redis.call('ZADD', key, now + lease, own)
end
if ARGV[4] ~= '1' then return 1 end
local waits = are_readers_next() and -1 or 0
for _, queue in ipairs({readers, writers}) do
  local size = redis.pcall('ZCARD', queue)
  if type(size) ~= 'table' then waits = waits + size end
end
return {1, string.format('%.0f', math.max(0, waits))}
