-- Lengthens the lease of a token that still holds the lock; never shortens it, never creates or deletes the key.
-- KEYS[1] lock
-- ARGV[1] token, ARGV[2] lease in ms
-- replies 1 held for at least that long now, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
