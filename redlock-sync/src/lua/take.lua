-- Takes the lock for a token if there is no key: the first attempt, when nothing is known of others. Safe to execute twice.
-- KEYS[1] lock, KEYS[2] fence counter, KEYS[3] wake list, KEYS[4] waiting: the last three are named so that the server refuses this call if the
-- user may not use them
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] may be `check` (permissions.lua)
-- replies 1 when the token holds the lock now, {0, remaining ms (-1 without end), first 80 bytes of the value} when another does
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
  return 1
end
return {0, redis.call('PTTL', KEYS[1]), string.sub(held or '', 1, 80)}
