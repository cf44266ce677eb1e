-- Frees the lock if the token still holds it and nobody waits: the release of a holder who has seen nobody else.
-- The first write is one that a full server (maxmemory) does not refuse.
-- KEYS[1] lock, KEYS[2] wake list, KEYS[3] waiting
-- ARGV[1] token, ARGV[2] `again` if this was sent before: then it is freed whoever waits, and a hint tells a waiter
-- replies 1 freed, 2 still held because others wait, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
local is_wanted = redis.call('EXISTS', KEYS[3]) == 1
if is_wanted and ARGV[2] ~= 'again' then return 2 end
redis.call('DEL', KEYS[1], KEYS[2])
if is_wanted then
  redis.call('RPUSH', KEYS[2], '0 0 0 ')
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return 1
