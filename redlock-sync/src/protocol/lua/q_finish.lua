-- Ends a claim if the token still has it. This works even after the claim's time, as long as no other claim has taken
-- the task. A full server (maxmemory) accepts the first write. A task that was pushed meanwhile is queued again, no
-- matter how the claim ends. If that push replaces the task, only the push decides.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] claims, KEYS[4] dead, KEYS[5] waits; or only the first three, which exist while a
-- task is claimed, while a cluster moves their slot: then no wait is notified, and no task dies
-- ARGV[1] token, ARGV[2] the end (done, retry, again, dead, or undo), ARGV[3] us until a task that is queued again is
-- due, ARGV[4] why, ARGV[5] most dead tasks, ARGV[6] ms for which a dead task is kept (empty: no limit), ARGV[7] place
-- of the task, or empty for a claim of unknown outcome
-- replies 1, 0 another claim has the task, -1 the token has none, or had another one that is given back

local due, tasks, claims, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

-- The fast path: the end `done` of a task that was not pushed again, and that the token still has.
if ARGV[2] == 'done' then
  local place = ARGV[7]
  local id = string.sub(place, 17)
  local state = redis.call('HGET', tasks, 's:' .. id) or ''
  local digits, again, holder = string.match(state, '^(%d+) %d+ %d+ (%d+) %d+ (%S+) ')
  -- A copy of the claim that was executed late may have taken a task that was pushed later under the same id.
  if again == '0' and holder == token and digits == string.sub(place, 1, 16) then
    -- If a key is of another type, nothing is changed.
    redis.call('HDEL', claims, token)
    local removed = redis.pcall('ZREM', due, place)
    if type(removed) == 'table' then
      redis.call('HSET', claims, token, place)
      return removed
    end
    redis.call('HDEL', tasks, 'b:' .. id, 's:' .. id)
    return 1
  end
end

-- include push, q_wake, q_task
local dead = KEYS[4]
local place = redis.call('HGET', claims, token)
if not place then return -1 end
-- A copy of the claim that was executed late may have taken another task. No claimant knows of that task.
local is_other = (ARGV[7] or '') ~= '' and ARGV[7] ~= place
local how, why, id = is_other and 'undo' or ARGV[2], '', id_of(place)
local attempts, version, again, _, holder = read(state_of(tasks, place))
-- A key of another type is found before anything is written.
redis.call('ZSCORE', due, place)
if how == 'dead' and again == 0 then
  if not dead then return redis.error_reply('TRYAGAIN the dead tasks are on their way to another server') end
  redis.call('ZCARD', dead)
end
local replaced = next_text(tasks, place, again, token)
if KEYS[5] then redis.call('ZCARD', KEYS[5]) end
forget(tasks, claims, id, token)
if holder ~= token then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = now + ARGV[3]
if again > 0 and (replaced or how == 'done' or how == 'dead') then how, at = 'again', again end
if how == 'done' then
  drop(due, tasks, place)
  return 1
elseif how == 'dead' then
  write(tasks, place, attempts, version, 0, '0', '-', ARGV[4])
  bury(due, tasks, dead, place, now, ARGV[5], ARGV[6])
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
if replaced then redis.call('HSET', tasks, 'b:' .. id, replaced) end
write(tasks, place, attempts, version, 0, '0', '-', why)
redis.call('ZADD', due, n(at), place)
if KEYS[5] and (at <= now or redis.call('ZRANGE', due, 0, 0)[1] == place) then wake(KEYS[5]) end
return told(is_other and -1 or 1)
