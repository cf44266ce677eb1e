-- Stands before the scripts of a queue that make a task due: how a client that waits is told to look. Uses no key and no argument by itself.
-- The waits are a sorted set of `channel/number` in the order of their last looks, in us. A hint takes its wait out, which enters again if it finds nothing:
-- so a burst wakes several clients, and one that was stopped keeps no more than one hint from the others. Waits of clients that are gone are taken out on the
-- way: there are no more of them than have looked in the last minute.
local function wake(waits)
  repeat
    local first = redis.pcall('ZPOPMIN', waits)[1]
  until not first or push(first, '0 0 0 0 ') ~= 0
end
