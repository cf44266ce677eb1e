-- Releases the lock if the token still holds it: grants it to the first wait in the queue whose client listens, or
-- frees it. With an empty token, it removes a wait from the queue, and passes a grant of that wait to the next wait. A
-- full server (maxmemory) does not refuse the first write.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter; or KEYS[1] only, while a cluster moves its slot: then no wait is
-- notified
-- ARGV[1] token (may be empty), ARGV[2] the grant, `age pauses several span life random`: age of the chain of grants in
-- ms; its pauses so far; 1 with several nodes; span of the grant in ms; ms for which the fence counter is kept after
-- the clock has reached it (0: no fence is wanted); random part of the next token (empty: nothing is granted).
-- The following are present only if one of them differs from its default in brackets: ARGV[3] own wait (empty), ARGV[4]
-- ms to keep the key (0: released now), ARGV[5] if nothing is granted, ms for which the lock is left to programs that
-- poll (0)
-- replies 1 released, 2 granted, 3 reserved since none of the waits listens here (several nodes), 4 freed since this
--         user may not publish, 5 released where only the lock's key was named, 6 released in a pause that goes on, 0
--         another token holds the lock, -1 there is no key

-- The fast path: a release while there is no wait.
if not ARGV[3] and ARGV[1] ~= '' and (not KEYS[2] or redis.pcall('EXISTS', KEYS[2]) == 0) then
  if redis.pcall('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
    return KEYS[2] and 1 or 5
  end
end

-- include fence_counter, push, grant
local key, queue, token = KEYS[1], KEYS[2], ARGV[1]
-- An empty token must not equal an empty value.
if token == '' then token = nil end
local held = redis.pcall('GET', key)
local wait, keep, pause = ARGV[3] or '', ARGV[4] or '0', ARGV[5] or '0'
local chain, several, span, life, random = string.match(ARGV[2], '^(%d+ %d+) (%d) (%d+) (%d+) (%x*)$')
several = several == '1'
if wait ~= '' and queue then
  redis.pcall('ZREM', queue, wait)
  mark(queue, wait, true)
end
if type(held) == 'table' then return held end
if held == false then
  -- The wait that leaves may have been notified to try, and the holder may have named only the lock's key.
  if queue then hint(queue, '0', '0 0') end
  return -1
end
local is_own_grant = wait ~= '' and string.sub(held, 33) == ':granted:' .. wait
if held ~= token and not is_own_grant then return 0 end
if keep ~= '0' or random == '' or not queue then
  if keep ~= '0' then redis.call('PEXPIRE', key, keep) else redis.call('DEL', key) end
  if not queue then return 5 end
  local first = pause ~= '0' and redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
  if first then
    local now = redis.call('TIME')
    local ends = now[1] * 1000 + math.floor(now[2] / 1000) + keep + pause
    redis.call('ZADD', queue, first - 1, '*' .. string.format('%.0f', ends))
  end
  hint(queue, string.format('%.0f', keep + pause), chain)
  return 1
end
if several then
  local first, heir = redis.pcall('ZRANGE', queue, 0, 7), nil
  redis.call('PEXPIRE', key, span)
  for i, next in ipairs(first) do
    local is_pause = string.sub(next, 1, 1) == '*'
    local receivers = is_pause and 0 or grant(key, queue, KEYS[3], next, random, span, chain, life)
    if receivers > 0 then
      redis.call('ZREMRANGEBYRANK', queue, 0, i - 1)
      return 2
    elseif receivers < 0 then
      redis.call('DEL', key)
      return 4
    end
    heir = heir or not is_pause and next
  end
  if heir then
    redis.call('SET', key, random .. ':granted:' .. heir, 'PX', span)
    return 3
  end
  -- Pauses without a wait behind them.
  redis.pcall('ZREMRANGEBYRANK', queue, 0, #first - 1)
else
  -- An attempt that reads no queue can acquire the lock in a pause. The pause then continues, so programs that poll
  -- find the lock free as long as before.
  local pause = string.match(redis.pcall('ZRANGE', queue, 0, 0)[1] or '', '^%*(%d+)$')
  if pause then
    local now = redis.call('TIME')
    local left = pause - (now[1] * 1000 + math.floor(now[2] / 1000))
    -- A pause lasts at most a second, unless the clock was set back.
    if left > 0 and left <= 1000 then
      redis.call('DEL', key)
      hint(queue, string.format('%.0f', left), '0 2')
      return 6
    end
  end
  for _ = 1, 64 do
    local next = redis.pcall('ZPOPMIN', queue)[1]
    if not next then break end
    local receivers = string.sub(next, 1, 1) == '*' and 0 or grant(key, queue, KEYS[3], next, random, span, chain, life)
    if receivers > 0 then return 2 end
    if receivers < 0 then
      redis.call('DEL', key)
      return 4
    end
  end
end
redis.call('DEL', key)
return 1
