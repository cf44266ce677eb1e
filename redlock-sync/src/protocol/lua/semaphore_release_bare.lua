-- Stands before all else of semaphore_release.lua: what most releases need, of the only slot of a lease while no wait is there. If the token has not
-- got it, or has no longer, the script behind it decides.
-- KEYS[1] semaphore, KEYS[2] queue
-- ARGV[1] token, ARGV[2] its slots, ARGV[3] not used, ARGV[4] not used, ARGV[5] not used, ARGV[6] ms to keep the permits, ARGV[7] own wait: it does nothing
-- if either is given, or if there is not one slot
-- replies 1 given up
if ARGV[6] == '0' and ARGV[7] == '' and tonumber(ARGV[2]) and redis.call('EXISTS', KEYS[2]) == 0 then
  local place = ARGV[2] .. ' ' .. ARGV[1]
  local ends = redis.pcall('ZSCORE', KEYS[1], place)
  if type(ends) == 'string' then
    local time = redis.call('TIME')
    if tonumber(ends) >= time[1] * 1000 + math.floor(time[2] / 1000) then
      return redis.call('ZREM', KEYS[1], place)
    end
  end
end
