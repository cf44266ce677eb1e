-- Acquires a read-write lock for a reader or a writer, if it may enter. Otherwise enters the wait into its queue. Safe
-- to execute twice: if the token holds the lock already, the reply is yes, and the lease is never shortened.
-- A reader enters if no writer holds the lock and none waits. A writer enters if nothing holds the lock and it is its
-- turn. A wait with a reservation always enters. With one node, a free lock goes to the waits whose turn it is.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers (rw.lua)
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] `r` or `w`, ARGV[4] 1 with several nodes (may be absent). A fast-path
-- call ends here.
-- ARGV[5] wait (empty: none), ARGV[6] ms for which the queue lives after a no (0: the wait leaves it),
-- ARGV[7] fence to reach (0: the next, -1: none is wanted), ARGV[8] ms for which the fence counter is kept after the
-- clock has reached it,
-- ARGV[9] 1 if it goes before all waits, since its lease holds the lock on other nodes; the last argument may be that of
-- permissions.lua
-- replies 1 or {1, fence} when the token holds the lock now; else
-- replies {0, ms until all holders should have ended, the token of one of them, place of the wait (0 none, 1 it is new,
--         2 it was there)}. Without a token the lock is free, but for others.

local letter, lease = ARGV[3], tonumber(ARGV[2])

-- The fast path: an attempt that asks only for the lock, while there is no wait. The argument of permissions.lua is one
-- too many for this path.
if (ARGV[4] or '1') == '1' and not ARGV[5] and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  local key = KEYS[1]
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- This is the holder that ends first.
  local holder = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if holder.err then return holder end
  local is_free = not holder[1]
  -- The lock is free, or only readers hold it and none of them has ended.
  if is_free or letter == 'r' and tonumber(holder[2]) >= now and string.sub(holder[1], 1, 1) == 'r' then
    -- A token that is already a holder keeps its end. That end is not earlier than the time on which this attempt may
    -- rely.
    redis.call('ZADD', key, 'NX', now + lease, letter .. ARGV[1])
    if is_free or redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, ARGV[2]) end
    return 1
  end
end

-- include permissions, fence_counter, push, rw
local own, several = letter .. ARGV[1], ARGV[4] == '1'
local wait, wanted = ARGV[5] or '', tonumber(ARGV[7] or -1)
local queue = letter == 'r' and readers or writers
local failure = failure_of_key()
if failure then return failure end
failure = wanted >= 0 and fence_error(KEYS[3])
if failure then return failure end
local held = live(own)
local opens = false

local function may_enter()
  if held > 0 or wait ~= '' and live(reservation_of(letter, wait)) > 0 then return true end
  local by = last()
  if is_writer(by) or by and letter == 'w' then return false end
  if ARGV[9] == '1' then return true end
  if letter == 'r' then
    -- If no writer waits, or if the readers are next, all readers enter.
    opens = true
    if not by and are_readers_next() or not first_writer(several) then return true end
    if not by then pass_on(false, '', several) end
    return false
  end
  if several then return not (are_readers_next() and reserve_for_readers(several)) end
  local next = pass_on(false, wait, several)
  return not next or next == wait
end

if may_enter() then
  -- A full server (maxmemory) refuses the first write of a new holder. It accepts the first write of a present holder.
  if held > 0 then redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease)) end
  redis.call('ZADD', key, math.max(held, now + lease), own)
  if wait ~= '' then
    redis.call('ZREM', key, reservation_of(letter, wait))
    redis.pcall('ZREM', queue, wait)
    mark(queue, wait, true)
  end
  drop_gone()
  if opens then
    reserve_for_readers(several)
  elseif letter == 'w' and not several and redis.call('EXISTS', readers) == 1 then
    redis.pcall('ZADD', readers, 0, '*')
  end
  tidy()
  return told(wanted < 0 and 1 or {1, raise(KEYS[3], wanted, ARGV[8])})
end

drop_gone()
local by, ends = last()
local place = 0
if wait ~= '' and ARGV[6] == '0' then
  leave(queue, wait)
  mark(queue, wait, true)
  -- The wait that leaves may have kept readers out.
  if letter == 'w' and by and not is_writer(by) and not first_writer(several) then reserve_for_readers(several) end
  drop_gone()
elseif wait ~= '' then
  if letter == 'r' and is_writer(by) then redis.call('ZADD', readers, 0, '*') end
  if several then
    place = 2 - redis.call('ZADD', queue, now + MARK, wait)
  else
    local latest = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    place = 2 - redis.call('ZADD', queue, 'NX', (latest or 0) + 1, wait)
  end
  redis.call('PEXPIRE', queue, several and MARK or ARGV[6])
  mark(queue, wait)
end
-- A free lock is reserved for a writer that is expected soon. If the writer does not come, its mark expires. A writer
-- that polls and keeps a reader out may be gone.
local order = several and 'ZREVRANGE' or 'ZRANGE'
local first = letter == 'r' and by and not is_writer(by) and redis.pcall(order, writers, 0, 0)[1]
local ms = math.min(by and ends - now or MARK, first and counts_for(first) or math.huge)
return told({0, ms, by and string.sub(by, 2, 81) or '', place})
