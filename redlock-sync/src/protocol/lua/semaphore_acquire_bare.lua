-- Stands before all else of semaphore_acquire.lua: what most attempts need, which ask for one permit and nothing else while no wait is there. In every
-- other case it does nothing, and the script behind it decides: also if the token has a permit, if one has ended, or if a member is no permit.
-- KEYS[1] semaphore, KEYS[2] queue, KEYS[3] fence counter, KEYS[4] several nodes: waits for more than one permit
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] number of permits, ARGV[4] slot at which the search begins, ARGV[5] 0, ARGV[6] not used, ARGV[7] not used,
-- ARGV[8] wait, ARGV[9] not used, ARGV[10] fence to reach, ARGV[11] not used, ARGV[12] how many slots, ARGV[13] not used: it does nothing if a wait, a
-- fence, the slots of a lease or more than one slot are named, or if there are more
-- replies {1, 0, slot} when that is lent to the token now
if #ARGV == 13 and ARGV[8] == '' and ARGV[10] == '-1' and ARGV[12] == '1' and ARGV[5] == '0'
  and redis.call('EXISTS', KEYS[2], KEYS[4] or KEYS[2]) == 0 then
  local key, lease, permits, slot = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local all = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')
  if all.err then return all end
  local size = #all / 2
  -- They are in order of their ends.
  local is_plain = size < permits and (size == 0 or tonumber(all[2]) >= now)
  local taken = {}
  for i = 1, is_plain and 2 * size or 0, 2 do
    local at, token = string.match(all[i], '^(%d+) (.+)$')
    is_plain = is_plain and at and token ~= ARGV[1]
    taken[tonumber(at or 0)] = true
  end
  if is_plain then
    while taken[slot] do slot = (slot + 1) % permits end
    redis.call('ZADD', key, now + lease, slot .. ' ' .. ARGV[1])
    if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
    return {1, '0', string.format('%d', slot)}
  end
end
