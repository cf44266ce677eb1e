-- Functions for the scripts of a read-write lock: they find the holders, the waits, and the wait whose turn it is.
-- Included after push.lua.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers
-- The lock is a sorted set of holders: `r` or `w` and the token. The score is the ms of this server's time through
-- which the holder has the lock. A holder whose time has passed counts as absent. There is either one writer or any
-- number of readers. So the holder that ends last shows which of them hold the lock.
-- A reservation is a holder whose token is that of a wait. It keeps the lock for that wait, which was notified to try.
-- The wait's next attempt replaces the reservation.
-- A queue is a sorted set of waits: `channel/number`, or the form of a wait that polls. With one node, it is in order
-- of arrival. A wait is alive while its client listens, or as push.lua defines it for a wait that polls. With several
-- nodes, the score is the end of the wait's mark, which each of its attempts renews.
-- A member `*` of the readers' queue says that a writer has held the lock while readers waited. The readers are next.
local key, readers, writers = KEYS[1], KEYS[2], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The time that a reservation lasts, and the time that a mark lasts, in ms.
local RESERVATION, MARK = 2000, 5000

-- Returns an error for a key that is not a read-write lock. Any member of a sorted set shows that: those of a semaphore
-- begin with a digit, and those of a latch with neither letter. Called before anything else is read or written under
-- the key.
local function failure_of_key()
  local found = redis.pcall('ZREVRANGE', key, 0, 0)
  if found.err then return found end
  if found[1] and not string.find(found[1], '^[rw]') then
    return redis.error_reply('WRONGTYPE the sorted set is no read-write lock')
  end
end

local function reservation_of(letter, wait)
  return letter .. '00000000000000000000000000000000:granted:' .. wait
end

-- Returns the end of a holder; 0 if it is absent.
local function live(member)
  local ends = tonumber(redis.call('ZSCORE', key, member) or 0)
  return ends >= now and ends or 0
end

-- Returns the holder that ends last, with its end. While a cluster moves the slot, the server refuses to read a key
-- that is gone. Then there is no holder.
local function last()
  local found = redis.pcall('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  if found[1] and tonumber(found[2]) >= now then return found[1], tonumber(found[2]) end
end

local function is_writer(member)
  return member and string.sub(member, 1, 1) == 'w'
end

-- Lets the key expire with the last of its holders, and removes some that have ended.
local function tidy()
  for _ = 1, 64 do
    local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
    if not first[1] or tonumber(first[2]) >= now then break end
    redis.call('ZREM', key, first[1])
  end
  local by, ends = last()
  if by then redis.call('PEXPIRE', key, math.max(1, ends - now)) end
end

local function has_mark(ends)
  return ends >= now and ends - now <= MARK
end

-- Returns the first writer in the queue that is alive. `gone` counts the waits before it, which can be removed. An
-- empty push is received and has no effect.
local gone = 0
local function first_writer(several)
  if several then
    local marks = redis.pcall('ZREVRANGE', writers, 0, 63, 'WITHSCORES')
    for i = 1, #marks, 2 do
      if not has_mark(tonumber(marks[i + 1])) then return end
      -- Other waits may listen on another node.
      if string.sub(marks[i], 1, 1) ~= '-' or push(marks[i], '', writers) ~= 0 then return marks[i] end
    end
    return
  end
  gone = 0
  for _, wait in ipairs(redis.pcall('ZRANGE', writers, 0, 63)) do
    if push(wait, '', writers) ~= 0 then return wait end
    gone = gone + 1
  end
end

local function drop_gone()
  if gone > 0 then redis.pcall('ZREMRANGEBYRANK', writers, 0, gone - 1) end
  gone = 0
end

-- Reserves the lock for a wait and notifies it. Returns false if its client is gone. With several nodes, its client may
-- listen on another node.
local function reserve(letter, wait, several)
  local member, polls = reservation_of(letter, wait), string.sub(wait, 1, 1) == '-'
  redis.call('ZADD', key, now + RESERVATION, member)
  if push(wait, '0 0 ', letter == 'r' and readers or writers) ~= 0 or several and not polls then return true end
  redis.call('ZREM', key, member)
  return false
end

-- Reserves the lock for all waiting readers. Returns whether there are any.
local function reserve_for_readers(several)
  local any, waits = false, redis.pcall('ZRANGE', readers, 0, -1, 'WITHSCORES')
  for i = 1, #waits, 2 do
    local is_wait = waits[i] ~= '*' and (not several or has_mark(tonumber(waits[i + 1])))
    if is_wait and reserve('r', waits[i], several) then any = true end
  end
  if waits[1] then redis.call('DEL', readers) end
  if any then tidy() end
  return any
end

-- Removes a wait from its queue. If no reader is left there, it is not the turn of the readers.
local function leave(queue, wait)
  redis.pcall('ZREM', queue, wait)
  local left = queue == readers and redis.pcall('ZRANGE', readers, 0, 1) or {}
  if left[1] == '*' and not left[2] then redis.pcall('DEL', readers) end
end

local function are_readers_next()
  return type(redis.pcall('ZSCORE', readers, '*')) == 'string'
end

-- Gives the free lock to the waits whose turn it is: after a writer to the readers, otherwise to the first writer. With
-- several nodes, any writer may take it, and the first is notified to try. Returns `own` if it is the turn of that
-- wait. Returns another value if it is the turn of another wait, and nil if no wait wants the lock.
local function pass_on(is_after_writer, own, several)
  drop_gone()
  if redis.call('EXISTS', readers) == 0 and redis.call('EXISTS', writers) == 0 then return end
  if (is_after_writer or are_readers_next()) and reserve_for_readers(several) then return '*' end
  if several then
    if not first_writer(several) then return reserve_for_readers(several) and '*' or nil end
    hint(writers, '0')
    return '*'
  end
  for _ = 1, 64 do
    local first = redis.pcall('ZRANGE', writers, 0, 0)[1]
    if not first or first == own then return first or reserve_for_readers(several) and '*' or nil end
    redis.call('ZREM', writers, first)
    if reserve('w', first, several) then
      tidy()
      return first
    end
  end
end

