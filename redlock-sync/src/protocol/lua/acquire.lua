-- Acquires the lock for a token if the lock is free and it is this attempt's turn, or if it was granted to this wait.
-- Otherwise enters the wait into the queue (contention.lua), where it keeps its place. Safe to execute twice: if the
-- token holds the lock already, the reply is yes, and the lease is never shortened.
-- With one node, a free lock belongs to the first wait in the queue whose client listens. An attempt of another wait
-- grants the lock to that wait. Several nodes can have different queues, which would block each other. There, any
-- attempt may take the lock, but no wait in a pause.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] 1 with several nodes (may be absent). A fast-path call ends here; it only
-- reports that there is a queue.
-- ARGV[4] wait (empty: none), ARGV[5] ms for which the queue lives after a no (0: the wait leaves it),
-- ARGV[6] fence to reach (0: the next, -1: none is wanted), ARGV[7] ms for which the fence counter is kept after the
-- clock has reached it,
-- ARGV[8] span of a grant in ms, ARGV[9..] from what it takes the lock over: prefixes of granted tokens, or `!` and a
-- whole value that may be taken over while its key has no time-to-live; the last argument may be that of permissions.lua
-- replies 1 or {1, fence} when the token holds the lock now; else
-- replies {0, remaining ms (-1 without end), first 80 bytes of the value, place of the wait (0 none, 1 it is new, 2 it
--         was there)}. If the value is empty, the key is free, but an attempt may take it only after the remaining ms.
-- include permissions
local key, queue, token = KEYS[1], KEYS[2], ARGV[1]
local is_fast_path, several = #ARGV <= 3, ARGV[3] == '1'
if is_fast_path then
  local is_open = several or redis.call('EXISTS', queue) == 0
  if is_open and redis.call('SET', key, token, 'NX', 'PX', ARGV[2]) then return 1 end
  local held = redis.pcall('GET', key)
  if type(held) == 'string' and held ~= token then return {0, redis.call('PTTL', key), string.sub(held, 1, 80), 0} end
end

-- include fence_counter, push, contention, grant
local wait, wanted = ARGV[4] or '', tonumber(ARGV[6] or -1)
local failure = wanted >= 0 and fence_error(KEYS[3])
if failure then return failure end

-- Returns whether this attempt may take the free lock. In a pause it may not. Then the function also returns the
-- remaining ms of the pause.
local function is_its_turn(first, due)
  local left = due > 0 and not (several and wait == '') and pause_left(due, now_in_ms())
  if left then return false, first == wait and next_try(left) or left end
  while first and first ~= wait and not several do
    if is_fast_path then return false end
    local receivers = grant(key, queue, KEYS[3], first, nil, ARGV[8], wanted < 0 and '0' or ARGV[7])
    -- This user may not publish. The wait keeps its place, and finds the lock free later.
    if receivers < 0 then return true end
    redis.call('ZREM', queue, first)
    if receivers > 0 then return false end
    first = front(queue)
  end
  return true
end

local held, left = redis.pcall('GET', key), nil
if type(held) == 'table' then return held end
if held == token then
  -- This write comes before the others, since a full server (maxmemory) accepts it and would refuse the others.
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))
else
  local free = held and wait ~= '' and string.sub(held, 33) == ':granted:' .. string.match(wait, '^[^ ]*')
  for i = 9, #ARGV do
    local whole = string.sub(ARGV[i], 1, 1) == '!'
    if held and not whole and string.sub(held, 1, #ARGV[i]) == ARGV[i] then free = true end
    if held and whole and '!' .. held == ARGV[i] and redis.call('PTTL', key) == -1 then free = true end
  end
  local first, record, due
  if not free and (not held or wait ~= '') then
    first, record, due = front(queue)
    if record and string.sub(record, 1, 3) ~= '*2 ' then
      return redis.error_reply('LAYOUT another version of redlock-sync waits for this lock. Its queue has the layout '
        .. string.match(record, '^%*(%d*)') .. ', and this version knows 2: use one version in all programs that share '
        .. 'the lock')
    end
  end
  if not held then
    free, left = is_its_turn(first, due)
  end
  if not free then
    local place = 0
    held = held or redis.call('GET', key)
    if wait ~= '' and ARGV[5] == '0' then
      redis.pcall('ZREM', queue, wait)
      mark(queue, wait, true)
      end_without_wait(queue, front(queue))
      -- Only this wait knows when the pause ends. It leaves, so the next wait is notified.
      if left then hint(queue, string.format('%.0f', left)) end
    elseif wait ~= '' then
      local is_foreign = held and (string.sub(held, 33, 33) ~= ':' or string.find(string.sub(held, 1, 32), '%X'))
      if not record or is_foreign then
        local began = string.match(record or '', '^%*2 (%d+)') or '0'
        local met = string.format('%.0f', is_foreign and now_in_ms() or 0)
        replace(queue, record, '*2 ' .. began .. ' ' .. met, due)
      end
      local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
      place = 2 - redis.call('ZADD', queue, 'NX', math.max(tonumber(last), 0) + 1, wait)
      redis.call('PEXPIRE', queue, ARGV[5])
      mark(queue, wait)
    end
    return told({0, left or held and redis.call('PTTL', key) or 0, string.sub(held or '', 1, 80), place})
  end
  redis.call('SET', key, token, 'PX', ARGV[2])
end
if wait ~= '' then
  redis.pcall('ZREM', queue, wait)
  mark(queue, wait, true)
end
return wanted < 0 and 1 or {1, raise(KEYS[3], wanted, ARGV[7])}
