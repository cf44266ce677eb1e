-- A function for the scripts of a queue that make a task due: it tells a waiting client to claim. Included after
-- push.lua. It uses no key and no argument by itself.
-- The waits are a sorted set of `channel/number`, in the order of their last claims, in us. A hint removes its wait,
-- which enters again if it finds nothing. So a burst wakes several clients, and a stopped client keeps only one hint
-- from the others. The function also removes waits of clients that are gone. There are at most as many of these as
-- clients have claimed in the last minute.
local function wake(waits)
  repeat
    local first = redis.pcall('ZPOPMIN', waits)[1]
  until not first or push(first, '0 0 ') ~= 0
end
