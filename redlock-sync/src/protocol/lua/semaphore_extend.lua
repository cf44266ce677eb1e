-- Lengthens the lease of a permit that its token still has; never shortens it, never lends anything. What the node has lent to the token
-- beside that slot is given up: the vote did not count. The first write is one that a full server (maxmemory) does not refuse.
-- KEYS[1] semaphore
-- ARGV[1] token, ARGV[2] slot, ARGV[3] lease in ms
-- replies 1 lent for at least that long now, 0 another token has the slot, -1 no token has it
local key, token, slot, lease = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = in_ms(redis.call('TIME'))
local lent, trouble = look(key, now)
if trouble then return trouble end
if lent.tokens[tonumber(slot)] ~= token then
  for at, other in pairs(lent.tokens) do
    if other == token then redis.call('ZREM', key, at .. ' ' .. token) end
  end
  return lent.tokens[tonumber(slot)] and 0 or -1
end
purge(key, now)
redis.call('ZADD', key, math.max(lent.ends[tonumber(slot)], now + lease), slot .. ' ' .. token)
lengthen(key, lease)
return 1
