-- With several nodes: frees a lock that was reserved for a grant, if no node notified a wait of it. Also deletes the
-- waits that the grant tried, since their clients do not listen. The first remaining wait is notified to try, even if
-- this node has another token or none.
-- KEYS[1] lock, KEYS[2] queue
-- ARGV[1] random part of the grant
-- replies 1 freed, 0 another token holds the lock, -1 there is no key
-- include push
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
local is_it = held and string.sub(held, 1, 41) == ARGV[1] .. ':granted:'
if is_it then
  redis.call('DEL', KEYS[1])
  -- The record (contention.lua) and the 8 waits that a release tries.
  for _, tried in ipairs(redis.pcall('ZRANGE', KEYS[2], 0, 8)) do
    if string.sub(tried, 1, 1) ~= '*' then redis.pcall('ZREM', KEYS[2], tried) end
  end
end
hint(KEYS[2], '0')
return told(is_it and 1 or held and 0 or -1)
