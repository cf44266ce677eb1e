-- Adds tasks to a queue. A second execution changes nothing more, unless a task was finished in between. That task is
-- queued again. A full server (maxmemory) refuses the first write.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] dead, KEYS[4] waits
-- ARGV[1] what to do with a task that is queued already (keep, replace, or earlier), ARGV[2] most tasks in the queue
-- (empty: no limit); then three for each task: ARGV[3] id, ARGV[4] body, ARGV[5] when it is due (`+us` from now, or us
-- since 1970); the last argument may be that of permissions.lua
-- replies {1, for each task: 1 new, 2 changed, 0 kept, 3 runs once more after the current claim, as it is pushed here,
--         4 runs once more with the body that it has}, {0, number of tasks} if the queue is full

local due, tasks, waits = KEYS[1], KEYS[2], KEYS[4]

-- The fast path: a push of one new task to a queue without a limit. If a wait may have to be woken, the rest of the
-- script does that. The argument of permissions.lua is one too many for this path.
local is_pushed = false
if #ARGV == 5 and ARGV[2] == '' and string.sub(ARGV[5], 1, 1) == '+' then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local digits, body = string.format('%016.0f', now), 'b:' .. ARGV[3]
  -- This call comes before any write, since it fails if the key is of another type.
  local are_waiting = redis.call('ZCARD', waits) > 0
  -- Each task that is queued or dead has a body.
  if not redis.call('HGET', tasks, body) then
    -- A full server refuses this.
    redis.call('HSET', tasks, body, digits .. ARGV[4])
    local place, at = digits .. ARGV[3], digits
    if ARGV[5] ~= '+0' then at = string.format('%.0f', now + ARGV[5]) end
    local queued = redis.pcall('ZADD', due, at, place)
    -- The key is of another type, so nothing is queued.
    if type(queued) == 'table' then
      redis.call('HDEL', tasks, body)
      return queued
    end
    is_pushed = true
    if not are_waiting or ARGV[5] ~= '+0' and redis.call('ZRANGE', due, 0, 0)[1] ~= place then return {1, 1} end
  end
end

-- include permissions, push, q_wake, q_task
if is_pushed then
  wake(waits)
  return told({1, 1})
end
local dead, policy = KEYS[3], ARGV[1]
-- A key of another type is found before anything is written. As in the fast path, a single task that is new needs no
-- key of dead tasks.
if redis.call('HGET', tasks, 'b:' .. ARGV[3]) or #ARGV > 5 then redis.call('ZCARD', dead) end
local are_waiting = redis.call('ZCARD', waits) > 0
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Returns the place of a task that is queued.
local function queued(id)
  local place = place_of(tasks, id)
  return place and redis.call('ZSCORE', due, place) and place
end
local most = tonumber(ARGV[2])
if most then
  local new, all, seen = 0, redis.call('ZCARD', due), {}
  for i = 3, #ARGV, 3 do
    if not seen[ARGV[i]] and not queued(ARGV[i]) then new = new + 1 end
    seen[ARGV[i]] = true
  end
  if new > 0 and all + new > most then return {0, all} end
end
local soonest = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or '') or math.huge
local said, must_wake = {1}, false
for i = 3, #ARGV, 3 do
  local id, body, at = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  at = string.sub(at, 1, 1) == '+' and now + tonumber(at) or tonumber(at)
  local place, outcome = queued(id), 0
  local attempts, version, again, fence, token, why = read(place and state_of(tasks, place))
  if not place then
    local old = place_of(tasks, id)
    -- Each task of one push is pushed a microsecond after the one before.
    local digits = string.format('%016.0f', now + (i - 3) / 3)
    redis.call('HSET', tasks, 'b:' .. id, digits .. body)
    redis.call('HDEL', tasks, 's:' .. id, 'n:' .. id)
    redis.call('ZADD', due, n(at), digits .. id)
    if old then redis.call('ZREM', dead, old) end
    outcome = 1
  elseif token ~= '-' then
    -- The task is claimed, or its claim is over. A late end of that claim must not remove this push.
    outcome = policy == 'replace' and 3 or 4
    if outcome == 3 then redis.call('HSET', tasks, 'n:' .. id, body) end
    if again == 0 or outcome == 3 or policy == 'earlier' and at < again then again = math.max(at, 1) end
    write(tasks, place, attempts, version + 1, again, fence, token, why)
  else
    local was = tonumber(redis.call('ZSCORE', due, place))
    if policy == 'replace' or policy == 'earlier' and at < was then
      if policy == 'replace' then
        redis.call('HSET', tasks, 'b:' .. id, string.sub(place, 1, 16) .. body)
        attempts = 0
      end
      write(tasks, place, attempts, version + 1, 0, fence, token, why)
      redis.call('ZADD', due, n(at), place)
      outcome = 2
    else
      redis.call('ZADD', due, n(was), place)
    end
  end
  if (outcome == 1 or outcome == 2) and (at <= now or at < soonest) then must_wake = true end
  said[#said + 1] = outcome
end
if must_wake and are_waiting then wake(waits) end
return told(said)
