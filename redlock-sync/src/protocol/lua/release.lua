-- Releases the lock if the token still holds it: grants it to the first wait in the queue whose client listens, or
-- frees it. Once in a second of contention, it frees the lock for a pause (contention.lua). With an empty token, it
-- removes a wait from the queue, and passes a grant of that wait to the next wait. A full server (maxmemory) does not
-- refuse the first write.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter; or KEYS[1] only, while a cluster moves its slot: then no wait is
-- notified
-- ARGV[1] token (may be empty), ARGV[2] the grant, `several span life threads`: 1 with several nodes; span of the grant
-- in ms (0: nothing is granted); ms for which the fence counter is kept after the clock has reached it (0: no fence is
-- wanted); 1 if threads of this process wait for the lock.
-- The following are present only if one of them differs from its default in brackets: ARGV[3] own wait (empty), ARGV[4]
-- ms to keep the key (0: released now)
-- replies 1 released, 2 granted, 3 reserved since none of the waits listens here (several nodes), 4 freed since this
--         user may not publish, 5 released where only the lock's key was named, 6 released for a pause, 0 another token
--         holds the lock, -1 there is no key

local key, queue, token, wait = KEYS[1], KEYS[2], ARGV[1], ARGV[3]
local held = redis.pcall('GET', key)
-- The fast path: a release while there is no wait. An empty token must not equal an empty value.
if not wait and held == token and token ~= '' and (not queue or redis.pcall('EXISTS', queue) == 0) then
  redis.call('DEL', key)
  return queue and 1 or 5
end

-- include fence_counter, push, contention, grant
if token == '' then token = nil end
wait = wait or ''
local keep = tonumber(ARGV[4] or 0)
local several, span, life, threads = string.match(ARGV[2], '^(%d) (%d+) (%d+) (%d)')
if wait ~= '' and queue then
  redis.pcall('ZREM', queue, wait)
  mark(queue, wait, true)
  end_without_wait(queue, front(queue))
end
if type(held) == 'table' then return held end
if held == false then
  -- The wait that leaves may have been notified to try, and the holder may have named only the lock's key.
  if queue then hint(queue, '0') end
  return told(-1)
end
local is_own_grant = wait ~= '' and string.sub(held, 33) == ':granted:' .. string.match(wait, '^[^ ]*')
if held ~= token and not is_own_grant then return 0 end
if keep > 0 then redis.call('PEXPIRE', key, keep) end
if not queue or span == '0' and keep == 0 then
  if keep == 0 then redis.call('DEL', key) end
  if queue then hint(queue, '0') end
  return told(queue and 1 or 5)
end

local first, record, due = front(queue)
-- Another version grants the lock by its own rules, once one of its waits tries.
if record and string.sub(record, 1, 3) ~= '*2 ' then
  if keep == 0 then redis.call('DEL', key) end
  hint(queue, string.format('%.0f', keep))
  return told(keep == 0 and 6 or 1)
end
local now = now_in_ms()
-- A pause goes on if an attempt that reads no queue has taken the lock in it. A minimum hold comes before a pause.
local left = keep == 0 and pause_left(due, now)
local pause = not left and (first or threads == '1') and due_pause(record, due, now)
if left or pause or keep > 0 then
  if keep == 0 then redis.call('DEL', key) end
  if pause then set_due(queue, record, now + keep + pause + CONTENDED) end
  hint(queue, string.format('%.0f', keep + next_try(left or pause or 0)))
  return told(keep == 0 and 6 or 1)
end
-- The first hand-over of this contention.
local is_first = first and record and due == 0

if several == '1' then
  -- All nodes reserve the lock under one random part: that of the released token, or of the wait that leaves.
  local random = token and string.sub(token, 1, 32) or string.match(wait, ' (%x+)$')
  local tried = {}
  redis.call('PEXPIRE', key, span)
  if is_first then begin(queue, record, now) end
  for _, next in ipairs(redis.pcall('ZRANGE', queue, record and 1 or 0, record and 8 or 7)) do
    local receivers = grant(key, queue, KEYS[3], next, random, span, life)
    tried[#tried + 1] = next
    if receivers > 0 then
      redis.call('ZREM', queue, unpack(tried))
      return told(2)
    elseif receivers < 0 then
      redis.call('DEL', key)
      return 4
    end
  end
  if first then
    redis.call('SET', key, random .. ':granted:' .. string.match(first, '^[^ ]*'), 'PX', span)
    return 3
  end
elseif first then
  repeat
    redis.call('ZREM', queue, first)
    local receivers = grant(key, queue, KEYS[3], first, nil, span, life)
    if is_first then begin(queue, record, now) end
    is_first = false
    if receivers > 0 then return told(2) end
    if receivers < 0 then
      -- The wait is the first again, and finds the lock free later.
      redis.call('ZADD', queue, 0.5, first)
      redis.call('DEL', key)
      return 4
    end
    first = front(queue)
  until not first
end
redis.call('DEL', key)
end_without_wait(queue, first, record)
return 1
