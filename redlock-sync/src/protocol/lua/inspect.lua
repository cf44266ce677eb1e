-- Names the holder of the lock.
-- KEYS[1] lock
-- replies {1, token, remaining ms (-1 without end)} or {0}
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return {0} end
return {1, held, redis.call('PTTL', KEYS[1])}
