-- With several nodes: frees a lock that was reserved for a grant, if no node notified a wait of it. Also deletes the
-- waits that the grant tried, since their clients do not listen. The first remaining wait is notified to try, even if
-- this node has another token or none.
-- KEYS[1] lock, KEYS[2] queue
-- ARGV[1] random part of the grant
-- replies 1 freed, 0 another token holds the lock, -1 there is no key
-- include push
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false or string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
  hint(KEYS[2], '0', '0 0')
  return held and 0 or -1
end
redis.call('DEL', KEYS[1])
redis.pcall('ZREMRANGEBYRANK', KEYS[2], 0, 7)
hint(KEYS[2], '0', '0 0')
return 1
