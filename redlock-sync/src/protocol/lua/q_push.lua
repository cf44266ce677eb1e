-- Adds tasks to a queue. A second execution changes nothing more, unless a task was finished in between. That task is
-- queued again. A full server (maxmemory) refuses the first write.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] dead, KEYS[5] waits, KEYS[6] claims
-- ARGV[1] what to do with a task that is queued already (keep, replace, or earlier), ARGV[2] most tasks in the queue
-- (empty: no limit); then three for each task: ARGV[3] id, ARGV[4] body, ARGV[5] when it is due (`+us` from now, or us
-- since 1970); the last argument may be that of permissions.lua
-- replies {1, for each task: 1 new, 2 changed, 0 kept, 3 runs once more after the current claim, as it is pushed here,
--         4 runs once more with the body that it has}, {0, number of tasks} if the queue is full

local due, body, meta, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[5]

-- The fast path: a push of one new task to a queue without a limit. If a wait may have to be woken, the rest of the
-- script does that. The argument of permissions.lua is one too many for this path.
local is_pushed = false
if #ARGV == 5 and ARGV[2] == '' and string.sub(ARGV[5], 1, 1) == '+' then
  local id = ARGV[3]
  -- A claimed or dead task has a state. A task that only waits needs none.
  if not redis.call('HGET', meta, id) then
    local time = redis.call('TIME')
    -- This call comes before any write, since it fails if the key is of another type.
    local are_waiting = redis.call('ZCARD', waits) > 0
    if redis.call('ZADD', due, 'NX', string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[5]), id) == 1 then
      local stored = redis.pcall('HSET', body, id, ARGV[4])
      -- The key is of another type, so nothing is queued.
      if type(stored) == 'table' then
        redis.call('ZREM', due, id)
        return stored
      end
      is_pushed = true
      if not are_waiting or ARGV[5] ~= '+0' and redis.call('ZRANGE', due, 0, 0)[1] ~= id then return {1, 1} end
    end
  end
end

-- include permissions, push, q_wake, q_task
if is_pushed then
  wake(waits)
  return {1, 1}
end
local dead, claims, policy = KEYS[4], KEYS[6], ARGV[1]
-- A key of another type is found before anything is written. The keys of dead tasks and of claims are used only for a
-- task that is claimed or not queued. For a single task, they are checked in that case.
redis.call('HGET', body, '')
if #ARGV > 5 then
  redis.call('ZCARD', dead)
  redis.call('HGET', claims, '')
end
local are_waiting = redis.call('ZCARD', waits) > 0
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local most = tonumber(ARGV[2])
if most then
  local new, queued, seen = 0, redis.call('ZCARD', due), {}
  for i = 3, #ARGV, 3 do
    if not seen[ARGV[i]] and not redis.call('ZSCORE', due, ARGV[i]) then new = new + 1 end
    seen[ARGV[i]] = true
  end
  if new > 0 and queued + new > most then return {0, queued} end
end
local soonest = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or '') or math.huge
local said, must_wake = {1}, false
for i = 3, #ARGV, 3 do
  local id, text, at = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  at = string.sub(at, 1, 1) == '+' and now + tonumber(at) or tonumber(at)
  local was, outcome = redis.call('ZSCORE', due, id), 0
  local state = redis.call('HGET', meta, id)
  local attempts, version, again, fence, token, why = read(state)
  if not was then
    -- A dead task has a state.
    local was_dead = state and redis.call('ZSCORE', dead, id)
    redis.call('HSET', body, id, text)
    -- No earlier task of this id had this version.
    write(meta, id, 0, now, 0, '0', '-', '')
    redis.call('ZADD', due, n(at), id)
    if was_dead then redis.call('ZREM', dead, id) end
    outcome = 1
  elseif token ~= '-' then
    -- The task is claimed, or its claim is over. A late end of that claim must not remove this push.
    outcome = policy == 'replace' and 3 or 4
    if outcome == 3 then redis.call('HSET', claims, token .. ' next', text) end
    if again == 0 or outcome == 3 or policy == 'earlier' and at < again then again = math.max(at, 1) end
    write(meta, id, attempts, version + 1, again, fence, token, why)
  elseif policy == 'replace' or policy == 'earlier' and at < tonumber(was) then
    if policy == 'replace' then
      redis.call('HSET', body, id, text)
      attempts = 0
    end
    write(meta, id, attempts, version + 1, 0, fence, token, why)
    redis.call('ZADD', due, n(at), id)
    outcome = 2
  else
    redis.call('HSET', meta, id, state or '')
  end
  if (outcome == 1 or outcome == 2) and (at <= now or at < soonest) then must_wake = true end
  said[#said + 1] = outcome
end
if must_wake and are_waiting then wake(waits) end
return said
