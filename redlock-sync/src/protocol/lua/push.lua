-- Stands before the scripts that give a lock up or may grant it: how they tell the waits. Uses no key and no argument by itself.
-- The queue is a sorted set of waits, each `channel/number`, in order of arrival. One that begins with `-` polls, and is told nothing. A
-- member `*ms` is a pause until that time of the server, in which programs that poll the key find it free.
-- A push is `wait fence span age pauses random key`, times in ms; a hint to try after the span ends behind the space in front of the random part.
-- The key is for a client that has no such wait any more: so it can give the lock back.
-- `pauses` is twice their number, and 1 more if a holder since the last one knows of a program of another library (`Pauses` in handover/rules.rs).

-- Behind a space a wait can say what it wants; its client is not told that.
-- How many connections received it: 0 if the client of the wait is gone, -1 if this user may not publish.
local function push(wait, rest)
  local heard = redis.pcall('PUBLISH', string.match(wait, '^[^/]*'), string.match(wait, '^[^ ]*') .. ' ' .. rest)
  return type(heard) == 'table' and -1 or heard
end

-- Tells the first wait in the queue whose client listens when to try; all keep their places. `chain` is the age and the pauses.
local function hint(queue, span, chain)
  for _, wait in ipairs(redis.pcall('ZRANGE', queue, 0, 7)) do
    local kind = string.sub(wait, 1, 1)
    if kind == '-' or kind ~= '*' and push(wait, '0 ' .. span .. ' ' .. chain .. ' ') ~= 0 then return end
  end
end

-- Grants the lock to a wait. The key is set first, so that what is told is true. `life` is for how long the fence counter outlasts the clock's
-- reaching it ('0': no fence is wanted). Returns what `push` does; one that polls has to come within 300 ms.
local function give(key, counter, wait, random, span, chain, life)
  local polls = string.sub(wait, 1, 1) == '-'
  redis.call('SET', key, random .. ':granted:' .. wait, 'PX', polls and 300 or span)
  if polls then return 1 end
  local fence, stored = '0', life ~= '0' and redis.pcall('GET', counter)
  -- At its end (acquire.lua) the next holder is told when it asks.
  if life ~= '0' and type(stored) ~= 'table' and (tonumber(stored or 0) or 0) < 9007199254740991 then
    local now = redis.call('TIME')
    local clock = now[1] * 1000000 + now[2]
    local next = math.max(clock, (tonumber(stored or 0) or 0) + 1)
    fence = string.format('%.0f', next)
    redis.call('SET', counter, fence, 'PX', life + math.floor((next - clock) / 1000))
  end
  return push(wait, fence .. ' ' .. span .. ' ' .. chain .. ' ' .. random .. ' ' .. key)
end

