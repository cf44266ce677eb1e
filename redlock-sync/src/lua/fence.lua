-- Raises the fence counter to a value, as long as the token holds the lock: the write-back that makes a quorum's fence monotonic.
-- The first write is one that a full server (maxmemory) does not refuse.
-- KEYS[1] lock, KEYS[2] fence counter
-- ARGV[1] token, ARGV[2] fence, ARGV[3] lifetime of the fence counter in ms
-- replies 1 the counter is at least that high now, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local stored = redis.call('GET', KEYS[2])
if not stored or (tonumber(stored) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
