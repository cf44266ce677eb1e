-- Stands before the scripts of a queue that make a task due: how a client that waits is told to look. Uses no key and no argument by itself.
-- The waits are a sorted set of `channel/number` in order of arrival. A hint takes its wait out, which enters again if it finds nothing: so a burst wakes
-- several clients, and one that was stopped keeps no more than one hint from the others.
local function wake(waits)
  for _ = 1, 64 do
    local first = redis.pcall('ZPOPMIN', waits)[1]
    if not first or push(first, '0 0 0 0 ') ~= 0 then return end
  end
end
