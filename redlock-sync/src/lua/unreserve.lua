-- Several nodes: frees a lock that was reserved for a grant of which no wait was told, and deletes the queue, in which no client listened.
-- KEYS[1] lock, KEYS[2] queue
-- ARGV[1] random part of the grant
-- replies 1 freed, 0 another token holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
