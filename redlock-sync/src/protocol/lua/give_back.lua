-- Passes a lock back to the token of its former holder, because another token has adopted it on too few nodes. The lock
-- is never free in between, and lasts as long as before. A full server (maxmemory) does not refuse the first write.
-- Safe to execute twice.
-- KEYS[1] lock
-- ARGV[1] token that adopted it, ARGV[2] token of the former holder
-- replies 1 given back, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
local life = redis.call('PTTL', KEYS[1])
-- Another program has removed the time-to-live.
if life == -1 then
  redis.call('SET', KEYS[1], ARGV[2])
  return 1
end
life = math.max(life, 1)
redis.call('PEXPIRE', KEYS[1], life)
redis.call('SET', KEYS[1], ARGV[2], 'PX', life)
return 1
