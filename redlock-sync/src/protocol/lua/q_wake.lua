-- Comes before the scripts of a queue that make a task due: tells a waiting client to claim. Uses no key and no
-- argument by itself.
-- The waits are a sorted set of `channel/number`, in the order of their last claims, in us. A hint removes its wait,
-- which enters again if it finds nothing. So a burst wakes several clients, and a stopped client keeps only one hint
-- from the others. Waits of clients that are gone are removed on the way. There are at most as many of them as have
-- claimed in the last minute.
local function wake(waits)
  repeat
    local first = redis.pcall('ZPOPMIN', waits)[1]
  until not first or push(first, '0 0 0 0 ') ~= 0
end
