-- Claims the task that has been due for longest. The script moves the task's time to the end of the claim. Then the
-- task is due again, unless the claimant has ended or extended the claim. Executed twice for one token, it names the
-- same task. A full server (maxmemory) accepts the first write, so clients can empty a queue there.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] claims (the place of each token), KEYS[4] dead, KEYS[5] waits, KEYS[6] last fence
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] most attempts, ARGV[4] most dead tasks, ARGV[5] ms for which a dead task
-- is kept (empty: no limit), ARGV[6] own wait (may be empty), ARGV[7] if no task is due: ms for which a wait stays
-- without another claim (0: the own wait leaves), ARGV[8] ms for which the last fence is kept after the clock has
-- reached it; the last argument may be that of permissions.lua
-- replies {1, fence, place, attempt, digits and body, us for which it had been due (0 for a task that this token has
--         claimed before)}, {0, ms until the next task is due (-1: there is none), number of tasks that died}

local due, tasks, claims, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local token, wait = ARGV[1], ARGV[6]

-- The fast path: a claim that finds a due task without a claim. If a wait may have to be woken, the rest of the script
-- does that. The argument of permissions.lua is one too many for this path.
local claimed
if #ARGV == 8 then
  local first = redis.call('ZRANGE', due, 0, 1, 'WITHSCORES')
  local time = redis.call('TIME')
  local place, next, now = first[1], tonumber(first[4] or ''), time[1] * 1000000 + time[2]
  if place and tonumber(first[2]) <= now then
    local id = string.sub(place, 17)
    local known = redis.call('HMGET', tasks, 'b:' .. id, 's:' .. id, 'paused')
    local text = known[1]
    local digits, state = string.sub(place, 1, 16), known[2]
    -- A task that was never claimed has no state.
    local own, attempts, version, why = digits, '0', '1', ''
    if state then own, attempts, version, why = string.match(state, '^(%d+) (%d+) (%d+) 0 %d+ %- (.*)$') end
    local is_free = own == digits and #attempts < 10 and tonumber(attempts) < tonumber(ARGV[3])
    if is_free and text and not known[3] and string.sub(text, 1, 16) == digits then
      local must_wake = next and (next <= now or wait ~= '' and next - now < 5000000)
      -- These calls come before any change, since they fail if the key is of another type.
      if wait ~= '' then redis.call('ZREM', waits, wait) end
      must_wake = must_wake and redis.call('ZCARD', waits) > 0
      -- A token that has a claim gets the same task again, from the rest of the script. That also claims on a full
      -- server, which refuses this write.
      if not redis.call('HGET', claims, token) and redis.pcall('HSET', claims, token, place) == 1 then
        local fence = string.format('%.0f', now)
        local last = redis.pcall('SET', KEYS[6], fence, 'PX', ARGV[8], 'GET')
        if type(last) == 'table' then
          redis.call('HDEL', claims, token)
          return last
        end
        last = tonumber(last or '')
        -- The clock was set back. What is no fence, since it is not exact, was set by hand.
        if last and last >= now and last < 9007199254740991 then
          fence = string.format('%.0f', last + 1)
          redis.call('SET', KEYS[6], fence, 'PX', ARGV[8] + math.floor((last + 1 - now) / 1000))
        end
        redis.call('ZADD', due, string.format('%.0f', now + ARGV[2] * 1000), place)
        state = digits .. ' ' .. attempts + 1 .. ' ' .. version .. ' 0 ' .. fence .. ' ' .. token .. ' ' .. why
        redis.call('HSET', tasks, 's:' .. id, state)
        claimed = {1, fence, place, attempts + 1, text, math.min(now - first[2], now)}
        if not must_wake then return claimed end
      end
    end
  end
end

-- include permissions, push, q_wake, q_task
if claimed then
  wake(waits)
  return told(claimed)
end
local dead = KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local mine, last = redis.call('HGET', claims, token), tonumber(redis.call('GET', KEYS[6]) or '') or 0
if not (last < 9007199254740991) then last = 0 end
if mine then
  local attempt, _, _, fence, holder = read(state_of(tasks, mine))
  if holder == token then
    local text = text_of(tasks, mine)
    -- The task dies when this claim is over.
    if not text then return {0, 0, 0} end
    redis.call('PERSIST', due)
    redis.call('HSET', claims, token, mine)
    return {1, fence, mine, attempt, text, 0}
  end
end
local died, is_paused = 0, redis.call('HGET', tasks, 'paused')
redis.call('PERSIST', due)
for _ = 1, 10 do
  local first = redis.call('ZRANGE', due, 0, 1, 'WITHSCORES')
  local place, at, next = first[1], tonumber(first[2] or ''), tonumber(first[4] or '')
  if is_paused or not place or at > now then
    -- A key of another type is found here, where the script does nothing else. A claim of a due task need not check
    -- that.
    local all_dead = redis.call('ZCARD', dead)
    if ARGV[5] ~= '' then trim(tasks, dead, now, all_dead, ARGV[5]) end
    -- Without a task, there is no claim and no state. What changes by hand have left ends here.
    if not place then
      redis.call('PEXPIRE', claims, 0)
      if not is_paused and all_dead == 0 then redis.call('PEXPIRE', tasks, 0) end
    end
    if wait ~= '' and ARGV[7] == '0' then
      redis.call('ZREM', waits, wait)
      -- Only this wait may have been notified of the next task.
      if place then wake(waits) end
    elseif wait ~= '' then
      redis.call('ZREMRANGEBYSCORE', waits, '-inf', '(' .. n(now - ARGV[7] * 1000))
      redis.call('ZADD', waits, n(now), wait)
      redis.call('PEXPIRE', waits, ARGV[7])
    end
    return told({0, not is_paused and place and math.ceil((at - now) / 1000) or -1, died})
  end
  local id = id_of(place)
  local text, is_stale = text_of(tasks, place)
  local attempts, version, again, _, holder, why = read(state_of(tasks, place))
  local replaced = next_text(tasks, place, again, holder)
  text = replaced or text
  local is_used_up = attempts >= tonumber(ARGV[3])
  local dies = not text or is_used_up and again == 0
  -- A key of another type is found before anything is moved.
  if dies then redis.call('ZCARD', dead) end
  -- Each wake-up causes the next one. A wait that is over passes on the time of the next task.
  local must_wake = next and (next <= now or wait ~= '' and next - now < 5000000)
  if wait ~= '' or must_wake then redis.call('ZCARD', waits) end
  forget(tasks, claims, id, holder)
  local is_new = replaced or is_used_up
  if is_stale then
    redis.call('ZREM', due, place)
  elseif dies then
    if not text then why = NO_BODY elseif holder ~= '-' then why = 'the claim ran out' end
    write(tasks, place, attempts, version, 0, '0', '-', why)
    bury(due, tasks, dead, place, now, ARGV[4], ARGV[5])
    died = died + 1
  elseif is_new and again > now then
    begin_anew(due, tasks, place, version, again, replaced)
  else
    -- Not by fence_counter.lua: `now` and `last` are known here, and the fast path needs it too.
    local fence = math.max(now, last + 1)
    if is_new then attempts, why = 0, '' end
    if again <= now then again = 0 end
    if replaced then redis.call('HSET', tasks, 'b:' .. id, text) end
    redis.call('ZADD', due, n(now + ARGV[2] * 1000), place)
    write(tasks, place, attempts + 1, version, again, n(fence), token, why)
    redis.call('HSET', claims, token, place)
    redis.call('SET', KEYS[6], n(fence), 'PX', ARGV[8] + math.floor((fence - now) / 1000))
    if wait ~= '' then redis.call('ZREM', waits, wait) end
    if must_wake then wake(waits) end
    return told({1, n(fence), place, attempts + 1, text, math.min(now - at, now)})
  end
end
return {0, 0, died}
