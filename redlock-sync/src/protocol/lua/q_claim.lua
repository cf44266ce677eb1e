-- Claims the task that has been due for longest. The script moves the task's time to the end of the claim. Then the
-- task is due again, unless the claimant has ended or extended the claim. Executed twice for one token, it names the
-- same task. A full server (maxmemory) accepts the first write, so clients can empty a queue there.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] dead, KEYS[5] claims (the task of each token), KEYS[6] waits,
-- KEYS[7] last fence
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] most attempts, ARGV[4] most dead tasks, ARGV[5] own wait (may be empty),
-- ARGV[6] if no task is due: ms for which a wait stays without another claim (0: the own wait leaves), ARGV[7] ms for
-- which the last fence is kept after the clock has reached it; the last argument may be that of permissions.lua
-- replies {1, fence, id, attempt, body, us for which it had been due (0 for a task that this token has claimed
--         before)}, {0, ms until the next task is due (-1: there is none), number of tasks that died}

local due, body, meta, claims, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]
local token, wait = ARGV[1], ARGV[5]

-- The fast path: a claim that finds a due task without a claim. If a wait may have to be woken, the rest of the script
-- does that. The argument of permissions.lua is one too many for this path.
local claimed
if #ARGV == 7 then
  local first = redis.call('ZRANGE', due, 0, 1, 'WITHSCORES')
  local time = redis.call('TIME')
  local id, next, now = first[1], tonumber(first[4] or ''), time[1] * 1000000 + time[2]
  local is_due = id and tonumber(first[2]) <= now and not redis.call('HGET', claims, token)
  -- A task that was never claimed has no state.
  local state = is_due and (redis.call('HGET', meta, id) or '0 1 0 0 - ')
  local attempts, version, why = string.match(state or '', '^(%d+) (%d+) 0 %d+ %- (.*)$')
  local is_free = attempts and #attempts < 10 and tonumber(attempts) < tonumber(ARGV[3])
  local text = is_free and redis.call('HGET', body, id)
  if text then
    local must_wake = next and (next <= now or wait ~= '' and next - now < 5000000)
    -- These calls come before any write, since they fail if the key is of another type. A full server (maxmemory)
    -- accepts the first write.
    local number = math.max(now, (tonumber(redis.call('GET', KEYS[7]) or '') or 0) + 1)
    local fence = string.format('%.0f', number)
    if wait ~= '' then redis.call('ZREM', waits, wait) end
    must_wake = must_wake and redis.call('ZCARD', waits) > 0
    redis.call('PERSIST', due)
    redis.call('ZADD', due, string.format('%.0f', now + ARGV[2] * 1000), id)
    redis.call('HSET', meta, id, attempts + 1 .. ' ' .. version .. ' 0 ' .. fence .. ' ' .. token .. ' ' .. why)
    redis.call('HSET', claims, token, id)
    redis.call('SET', KEYS[7], fence, 'PX', ARGV[7] + math.floor((number - now) / 1000))
    claimed = {1, fence, id, attempts + 1, text, math.min(now - first[2], now)}
    if not must_wake then return claimed end
  end
end

-- include permissions, push, q_wake, q_task
if claimed then
  wake(waits)
  return claimed
end
local dead = KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local mine, last = redis.call('HGET', claims, token), tonumber(redis.call('GET', KEYS[7]) or '') or 0
if mine then
  local attempt, _, _, fence, holder = read(redis.call('HGET', meta, mine))
  if holder == token then
    local text = redis.call('HGET', body, mine)
    -- The task dies when this claim is over.
    if not text then return {0, 0, 0} end
    redis.call('PERSIST', due)
    redis.call('HSET', claims, token, mine)
    return {1, fence, mine, attempt, text, 0}
  end
end
local died = 0
redis.call('PERSIST', due)
for _ = 1, 10 do
  local first = redis.call('ZRANGE', due, 0, 1, 'WITHSCORES')
  local id, at, next = first[1], tonumber(first[2] or ''), tonumber(first[4] or '')
  if not id or at > now then
    -- A key of another type is found here, where the script does nothing else. A claim of a due task need not check
    -- that.
    redis.call('ZCARD', dead)
    if wait ~= '' and ARGV[6] == '0' then
      redis.call('ZREM', waits, wait)
      -- Only this wait may have been notified of the next task.
      if id then wake(waits) end
    elseif wait ~= '' then
      redis.call('ZREMRANGEBYSCORE', waits, '-inf', '(' .. n(now - ARGV[6] * 1000))
      redis.call('ZADD', waits, n(now), wait)
      redis.call('PEXPIRE', waits, ARGV[6])
    end
    return {0, id and math.ceil((at - now) / 1000) or -1, died}
  end
  local text = redis.call('HGET', body, id)
  local attempts, version, again, _, holder, why = read(redis.call('HGET', meta, id))
  local replaced = body_behind(claims, holder, again)
  text = replaced or text
  local is_used_up = attempts >= tonumber(ARGV[3])
  local dies = not text or is_used_up and again == 0
  -- A key of another type is found before anything is moved.
  if dies then redis.call('ZCARD', dead) end
  -- Each wake-up causes the next one. A wait that is over passes on the time of the next task.
  local must_wake = next and (next <= now or wait ~= '' and next - now < 5000000)
  if wait ~= '' or must_wake then redis.call('ZCARD', waits) end
  forget(claims, holder)
  local is_new = replaced or is_used_up
  if dies then
    if not text then why = NO_BODY elseif holder ~= '-' then why = 'the claim ran out' end
    write(meta, id, attempts, version, 0, '0', '-', why)
    bury(due, body, meta, dead, id, now, tonumber(ARGV[4]))
    died = died + 1
  elseif is_new and again > now then
    begin_anew(due, body, meta, id, version, again, replaced)
  else
    -- Not by fence_counter.lua: `now` and `last` are known here, and the fast path needs it too.
    local fence = math.max(now, last + 1)
    if is_new then attempts, why = 0, '' end
    if again <= now then again = 0 end
    if replaced then redis.call('HSET', body, id, text) end
    redis.call('ZADD', due, n(now + ARGV[2] * 1000), id)
    write(meta, id, attempts + 1, version, again, n(fence), token, why)
    redis.call('HSET', claims, token, id)
    redis.call('SET', KEYS[7], n(fence), 'PX', ARGV[7] + math.floor((fence - now) / 1000))
    if wait ~= '' then redis.call('ZREM', waits, wait) end
    if must_wake then wake(waits) end
    return {1, n(fence), id, attempts + 1, text, math.min(now - at, now)}
  end
end
return {0, 0, died}
