-- Functions for the scripts that raise the fence counter of a lock. They use no key and no argument by themselves.
-- The counter is a number. A lock's first fence is the time of the server's clock in us, and each later one is higher.
-- All kinds of locks have the same counter, in a key of its own beside the lock.

-- Returns an error if the counter can rise no more, or has another type. A script that can refuse calls it before it
-- writes. 2^53 - 1 is the end, since larger numbers are not exact. Only a change by hand brings the counter there.
local function fence_error(counter)
  local stored = redis.pcall('GET', counter)
  -- Not the error of the server: the client would take it for the state of the lock's own key.
  if type(stored) == 'table' then
    return redis.error_reply('FENCEEND the fence counter has another type: delete its key ' .. counter)
  end
  if (tonumber(stored or 0) or 0) >= 9007199254740991 then
    return redis.error_reply('FENCEEND the fence counter can rise no more: delete its key ' .. counter)
  end
end

-- Raises the counter: to the next value (`wanted` is 0), or at least to `wanted`. Returns its value then. A full server
-- (maxmemory) does not refuse the first write. The server's time makes fences rise even on a node that lost its data.
-- Microseconds are exact in a double until 2255. The counter is kept for `life` ms after the clock has reached it.
local function raise(counter, wanted, life)
  local now = redis.call('TIME')
  local clock = now[1] * 1000000 + now[2]
  local stored = tonumber(redis.call('GET', counter) or 0) or 0
  local fence = wanted == 0 and math.max(clock, stored + 1) or math.max(wanted, stored)
  life = life + math.max(0, math.floor((fence - clock) / 1000))
  redis.pcall('PEXPIRE', counter, life)
  local text = string.format('%.0f', fence)
  -- Not `>`: a counter that was set to `nan` by hand is replaced too.
  if not (fence <= stored) then redis.call('SET', counter, text, 'PX', life) end
  return text
end
