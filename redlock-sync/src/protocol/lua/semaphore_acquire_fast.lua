-- Runs before all other parts of semaphore_acquire.lua, as the fast path: an attempt that asks only for one permit,
-- while there is no wait. In every other case it does nothing, and the script that follows decides. The same applies if
-- the token has a permit, if a permit has ended, or if a member is not a permit. Its twin is semaphore_acquire.lua.
-- KEYS[1] semaphore, KEYS[2] queue, KEYS[3] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] number of permits, ARGV[4] slot at which the search begins, ARGV[5] not
-- used
-- ARGV[6..] if there are more arguments, it does nothing
-- replies {1, 0, slot} when that slot is lent to the token now
if not ARGV[6] and redis.call('EXISTS', KEYS[2]) == 0 then
  local key, lease, slot = KEYS[1], tonumber(ARGV[2]), ARGV[4]
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local all = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')
  if all.err then return all end
  if all[1] then
    local permits, at, taken = tonumber(ARGV[3]), tonumber(slot), {}
    -- The members are in order of their ends.
    local is_plain = #all < 2 * permits and tonumber(all[2]) >= now
    for i = 1, is_plain and #all or 0, 2 do
      local other, token = string.match(all[i], '^(%d+) (.+)$')
      is_plain = is_plain and other and token ~= ARGV[1]
      taken[tonumber(other or -1)] = true
    end
    while is_plain and taken[at] do at = (at + 1) % permits end
    slot = is_plain and string.format('%d', at)
  end
  if slot then
    redis.call('ZADD', key, now + lease, slot .. ' ' .. ARGV[1])
    if not all[1] or redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
    return {1, '0', slot}
  end
end
