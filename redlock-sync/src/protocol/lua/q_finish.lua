-- Ends a claim if the token still has it. This works even after the claim's time, as long as no other claim has taken
-- the task. A full server (maxmemory) accepts the first write. A task that was pushed meanwhile is queued again, no
-- matter how the claim ends. If that push replaces the task, only the push decides.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] claims, KEYS[5] dead, KEYS[6] waits; or only the first four, which
-- exist while a task is claimed, while a cluster moves their slot: then no wait is notified, and no task dies
-- ARGV[1] token, ARGV[2] the end (done, retry, again, dead, or undo), ARGV[3] us until a task that is queued again is
-- due, ARGV[4] why, ARGV[5] most dead tasks, ARGV[6] id of the task, or empty for a claim of unknown outcome
-- replies 1, 0 another claim has the task, -1 the token has none, or had another one that is given back

local due, body, meta, claims, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

-- The fast path: the end `done` of a task that was not pushed again, and that the token still has.
if ARGV[2] == 'done' then
  local id = ARGV[6]
  local again, holder = string.match(redis.call('HGET', meta, id) or '', '^%d+ %d+ (%d+) %d+ (%S+) ')
  if again == '0' and holder == token then
    -- A key of another type is found before a task is changed.
    redis.call('HGET', body, '')
    redis.call('HDEL', claims, token)
    local removed = redis.pcall('ZREM', due, id)
    if type(removed) == 'table' then
      redis.call('HSET', claims, token, id)
      return removed
    end
    redis.call('HDEL', body, id)
    redis.call('HDEL', meta, id)
    return 1
  end
end

-- include push, q_wake, q_task
local dead = KEYS[5]
local id = redis.call('HGET', claims, token)
if not id then return -1 end
-- A copy of the claim that was executed late may have taken another task. No claimant knows of that task.
local is_other = (ARGV[6] or '') ~= '' and ARGV[6] ~= id
local how, why = is_other and 'undo' or ARGV[2], ''
local attempts, version, again, _, holder = read(redis.call('HGET', meta, id))
-- A key of another type is found before anything is written.
redis.call('ZSCORE', due, id)
if how == 'dead' and again == 0 then
  if not dead then return redis.error_reply('TRYAGAIN the dead tasks are on their way to another server') end
  redis.call('ZCARD', dead)
end
local replaced = body_behind(claims, token, again)
if replaced or how == 'done' or how == 'dead' then redis.call('HGET', body, '') end
if KEYS[6] then redis.call('ZCARD', KEYS[6]) end
forget(claims, token)
if holder ~= token then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = now + ARGV[3]
if again > 0 and (replaced or how == 'done' or how == 'dead') then how, at = 'again', again end
if how == 'done' then
  redis.call('ZREM', due, id)
  redis.call('HDEL', body, id)
  redis.call('HDEL', meta, id)
  return 1
elseif how == 'dead' then
  write(meta, id, attempts, version, 0, '0', '-', ARGV[4])
  bury(due, body, meta, dead, id, now, tonumber(ARGV[5]))
  return 1
elseif how == 'again' then
  attempts = 0
elseif how == 'undo' then
  attempts, at = math.max(attempts - 1, 0), now
else
  why = ARGV[4]
end
if again > 0 then at = math.min(at, again) end
at = math.max(at, now)
if replaced then redis.call('HSET', body, id, replaced) end
write(meta, id, attempts, version, 0, '0', '-', why)
redis.call('ZADD', due, n(at), id)
if KEYS[6] and (at <= now or redis.call('ZRANGE', due, 0, 0)[1] == id) then wake(KEYS[6]) end
return is_other and -1 or 1
