-- Counts who else waits for the lock that the token holds.
-- KEYS[1] lock, KEYS[2] waiting
-- ARGV[1] token, ARGV[2] id of the holder's own waiter (may be empty)
-- replies {1, number of waiters}, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local waiting = redis.call('ZCOUNT', KEYS[2], string.format('(%.0f', ms), '+inf')
local own = ARGV[2] ~= '' and redis.call('ZSCORE', KEYS[2], ARGV[2])
if own and tonumber(own) > ms then waiting = waiting - 1 end
return {1, string.format('%.0f', waiting)}
