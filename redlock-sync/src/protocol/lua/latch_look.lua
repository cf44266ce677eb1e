-- Reports the state of a latch, and registers a wait that is notified when it opens. Safe to execute twice. A full
-- server (maxmemory) does not refuse the first write.
-- KEYS[1] latch, KEYS[2] its waits
-- ARGV[1] number of arrivals that open it, ARGV[2] 1 if the arrivals are wanted (several nodes), ARGV[3] wait (empty:
-- none), ARGV[4] ms for which the wait is remembered (0: it is over)
-- replies {1, 1 if it is open or 0, number of arrivals, remaining ms (-2 without arrivals)}; while it is closed, the
--         arrivals follow if they are wanted
local key, waits, wait = KEYS[1], KEYS[2], ARGV[3]
if wait ~= '' then redis.pcall('ZREM', waits, wait) end
local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
if first.err then return first end
if first[2] and tonumber(first[2]) < 9e15 then
  return redis.error_reply('WRONGTYPE the key holds a lock that is no latch')
end
local is_marked = first[1] == '!'
local count = redis.call('ZCARD', key) - (is_marked and 1 or 0)
local is_open = is_marked or count >= tonumber(ARGV[1])
if wait ~= '' and not is_open and ARGV[4] ~= '0' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- Each call removes a few waits that have ended.
  local oldest = redis.pcall('ZRANGE', waits, 0, 7, 'WITHSCORES')
  for i = 2, #oldest, 2 do
    if tonumber(oldest[i]) < now then redis.call('ZREM', waits, oldest[i - 1]) end
  end
  redis.call('ZADD', waits, string.format('%.0f', now + ARGV[4]), wait)
  redis.call('PEXPIRE', waits, math.max(redis.call('PTTL', waits), tonumber(ARGV[4])))
end
local reply = {1, is_open and 1 or 0, count, redis.call('PTTL', key)}
if ARGV[2] == '1' and not is_open then
  for _, arrival in ipairs(redis.call('ZRANGE', key, 0, -1)) do reply[#reply + 1] = arrival end
end
return reply
