-- Runs before all other parts of q_claim.lua, as the fast path: a claim that finds a due task without a claim. In every
-- other case it does nothing, and the script that follows decides. If it has claimed a task and a wait may have to be
-- woken, the script that follows wakes the wait. Its twin is q_claim.lua.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] dead, KEYS[5] claims, KEYS[6] waits, KEYS[7] last fence
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] most attempts, ARGV[4] not used, ARGV[5] own wait (may be empty), ARGV[6]
-- not used, ARGV[7] ms for which the last fence is kept after the clock has reached it; if there are more arguments, it
-- does nothing
-- replies {1, fence, id, attempt, body, us for which it had been due}
local claimed
if #ARGV == 7 then
  local due, meta, claims, token, wait = KEYS[1], KEYS[3], KEYS[5], ARGV[1], ARGV[5]
  local first = redis.call('ZRANGE', due, 0, 1, 'WITHSCORES')
  local time = redis.call('TIME')
  local id, next, now = first[1], tonumber(first[4] or ''), time[1] * 1000000 + time[2]
  local is_due = id and tonumber(first[2]) <= now and not redis.call('HGET', claims, token)
  -- A task that was never claimed has no state.
  local state = is_due and (redis.call('HGET', meta, id) or '0 1 0 0 - ')
  local attempts, version, why = string.match(state or '', '^(%d+) (%d+) 0 %d+ %- (.*)$')
  local is_free = attempts and #attempts < 10 and tonumber(attempts) < tonumber(ARGV[3])
  local text = is_free and redis.call('HGET', KEYS[2], id)
  if text then
    local must_wake = next and (next <= now or wait ~= '' and next - now < 5000000)
    -- These calls come before any write, since they fail if the key is of another type. A full server (maxmemory)
    -- accepts the first write.
    local number = math.max(now, (tonumber(redis.call('GET', KEYS[7]) or '') or 0) + 1)
    local fence = string.format('%.0f', number)
    if wait ~= '' then redis.call('ZREM', KEYS[6], wait) end
    must_wake = must_wake and redis.call('ZCARD', KEYS[6]) > 0
    redis.call('PERSIST', due)
    redis.call('ZADD', due, string.format('%.0f', now + ARGV[2] * 1000), id)
    redis.call('HSET', meta, id, attempts + 1 .. ' ' .. version .. ' 0 ' .. fence .. ' ' .. token .. ' ' .. why)
    redis.call('HSET', claims, token, id)
    redis.call('SET', KEYS[7], fence, 'PX', ARGV[7] + math.floor((number - now) / 1000))
    claimed = {1, fence, id, attempts + 1, text, math.min(now - first[2], now)}
    if not must_wake then return claimed end
  end
end
