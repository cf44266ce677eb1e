-- Lengthens the lease of permits if their token still has all of them. Never shortens it, and never lends anything.
-- Other slots that the node has lent to the token are given back, since its vote did not count. A full server
-- (maxmemory) does not refuse the first write.
-- KEYS[1] semaphore
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] slots
-- replies 1 lent for at least that long now, 0 another token has one of the slots, -1 no token has it
-- include push, slots
local key, token, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local slots, set = slots_of(ARGV[3])
local now = in_ms(redis.call('TIME'))
local lent, failure = read_lent(key, now)
if failure then return failure end
local missing
for _, slot in ipairs(slots) do
  if lent.tokens[slot] ~= token then missing = math.max(missing or -1, lent.tokens[slot] and 0 or -1) end
end
if missing then
  for at, other in pairs(lent.tokens) do
    if other == token and not set[at] then redis.call('ZREM', key, at .. ' ' .. token) end
  end
  return missing
end
purge(key, now)
for _, slot in ipairs(slots) do
  redis.call('ZADD', key, math.max(lent.ends[slot], now + lease), slot .. ' ' .. token)
end
lengthen(key, lease)
return 1
