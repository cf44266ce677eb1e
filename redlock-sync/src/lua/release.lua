-- Frees the lock if the token still holds it; with a minimum hold left, lets the key run out after that instead.
-- The first write is one that a full server (maxmemory) does not refuse.
-- KEYS[1] lock
-- ARGV[1] token, ARGV[2] ms to keep the key (0 deletes it now)
-- replies 1 released, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1])
end
return 1
