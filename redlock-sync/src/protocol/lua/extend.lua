-- Lengthens the lease of a token that still holds the lock. Never shortens it, never creates or deletes the key. Also
-- counts the waits.
-- KEYS[1] lock, KEYS[2] queue, only if the number of waits is wanted
-- ARGV[1] token, ARGV[2] lease in ms
-- replies 1, or {1, number of waits}: held for at least that long now; 0 another token holds the lock, -1 there is no
--         key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
if not KEYS[2] then return 1 end
local waits = redis.pcall('ZCARD', KEYS[2])
return {1, type(waits) == 'table' and '0' or string.format('%.0f', waits)}
