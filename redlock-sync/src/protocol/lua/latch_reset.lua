-- Closes a latch again by removing all arrivals. Threads that wait continue to wait.
-- KEYS[1] latch
-- replies 1 removed, -1 there were none
local first = redis.pcall('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first.err then return first end
if not first[2] then return -1 end
if tonumber(first[2]) < 9e15 then return redis.error_reply('WRONGTYPE the key holds a lock that is no latch') end
redis.call('DEL', KEYS[1])
return 1
