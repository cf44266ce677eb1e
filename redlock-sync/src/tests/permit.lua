-- A counting permit on one node: at most so many tokens hold it at a time.
-- KEYS[1] permits: a sorted set of tokens by the end of their lease, in ms of the server's clock
-- ARGV[1] operation, ARGV[2] token, ARGV[3] ms of the lease, ARGV[4] how many may hold it
-- replies 1 done, 0 or -1 the token holds none; acquire: {0, ms until a permit ends, its token, 0} where none is left; inspect: {1, token, ms,
--         token, ms, ...} or {0}
local key, operation, token = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('ZSCORE', key, token)
local is_held = ends and tonumber(ends) > now
if operation == 'release' then
  return is_held and redis.call('ZREM', key, token) or -1
end
if operation == 'inspect' then
  local reply = {0}
  local live = redis.call('ZRANGEBYSCORE', key, '(' .. now, '+inf', 'WITHSCORES')
  for i = 1, #live, 2 do
    reply[1], reply[i + 1], reply[i + 2] = 1, live[i], live[i + 1] - now
  end
  return reply
end
if operation == 'extend' and not is_held then return -1 end
redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
if not is_held and redis.call('ZCARD', key) >= tonumber(ARGV[4]) then
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return {0, first[2] - now, first[1], 0}
end
redis.call('ZADD', key, string.format('%.0f', math.max(now + ARGV[3], tonumber(ends or 0))), token)
redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[3])))
return 1
