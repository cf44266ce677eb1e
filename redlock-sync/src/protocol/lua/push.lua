-- Stands before the scripts that give a lock up or may grant it: how they tell the waits. Uses no key and no argument by itself.
-- The queue is a sorted set of waits, each `channel/number`, in order of arrival. A member `*ms` is a pause until that time of the server, in
-- which programs that poll the key find it free.
-- A wait of a client that cannot be told anything is `-ms:random`: it polls. Each of its attempts sets a mark beside the queue that lasts for so many ms,
-- longer than its pauses. Without the mark its process is gone, and others go first; one that only slept enters anew, at the end. The wait of an older
-- client is `-random`, and counts as alive; its scripts take both for alive.
-- A push is `wait fence span age pauses random key`, times in ms; a hint to try after the span ends behind the space in front of the random part.
-- The key is for a client that has no such wait any more: so it can give the lock back.
-- `pauses` is twice their number, and 1 more if a holder since the last one knows of a program of another library (`Pauses` in handover/rules.rs).

-- Behind a space a wait can say what it wants; its client is not told that.
-- How many connections received it: 0 if the client of the wait is gone, -1 if this user may not publish. One that polls is told nothing, and is 1 if it
-- is there. A cluster that moves the slot can refuse to look, which says nothing.
local function push(wait, rest, queue)
  if string.sub(wait, 1, 1) == '-' then
    local is_marked = queue and string.find(wait, '^%-%d+:')
    return is_marked and redis.pcall('GET', queue .. ':' .. wait) == false and 0 or 1
  end
  local heard = redis.pcall('PUBLISH', string.match(wait, '^[^/]*'), string.match(wait, '^[^ ]*') .. ' ' .. rest)
  return type(heard) == 'table' and -1 or heard
end

-- The ms within which a wait that polls is known to be gone if it is; nothing for one that listens.
local function counts_for(wait)
  return tonumber(string.match(wait, '^%-(%d+):'))
end

-- Sets the mark of a wait that polls and is in the queue, or removes it once the wait is over.
local function mark(queue, wait, is_over)
  local ms = string.match(wait, '^%-(%d+):')
  local key = ms and queue .. ':' .. wait
  if ms and is_over then redis.pcall('PEXPIRE', key, 0) elseif ms then redis.pcall('SET', key, '1', 'PX', ms) end
end

-- Tells the first wait in the queue whose client listens when to try; all keep their places. `chain` is the age and the pauses.
local function hint(queue, span, chain)
  for _, wait in ipairs(redis.pcall('ZRANGE', queue, 0, 7)) do
    if string.sub(wait, 1, 1) ~= '*' and push(wait, '0 ' .. span .. ' ' .. chain .. ' ', queue) ~= 0 then return end
  end
end

-- Grants the lock to a wait. The key is set first, so that what is told is true. `life` is for how long the fence counter outlasts the clock's
-- reaching it ('0': no fence is wanted). Returns what `push` does; one that polls has to come within 300 ms.
local function give(key, queue, counter, wait, random, span, chain, life)
  local polls = string.sub(wait, 1, 1) == '-'
  if polls and push(wait, '', queue) == 0 then return 0 end
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

