-- Functions for the scripts of a mutex that others wait for. They use no key and no argument by themselves.
-- The queue of a mutex is a sorted set. A wait is the member `id random`. Its id is `channel/number`, or `-ms:random` if
-- it polls (push.lua). Its score is one higher than that of the last wait.
-- The first member is the record of the contention, `*2 began pause met`, with the score 0. 2 is the number of this
-- layout: an attempt of a client that does not know the number is refused. The other words are ms of the server's clock:
-- `began`: when the lock was first handed over; 0: not yet.
-- `pause`: the end of the last pause. In a pause the lock is left to programs of other libraries, which poll it. No
-- attempt or release of this library gives it to a wait.
-- `met`: when such a program was last seen to hold the lock; 0: never.
-- The record outlives the last wait by a second. So it is not lost where the queue is empty for a moment.

local CONTENDED, PAUSE, LONG_PAUSE, LONG_EVERY, MET_FOR, REMAINS = 1000, 10, 250, 12, 60000, 1000
-- In a long pause, the first wait tries again after this time, and so meets a program that has taken the lock.
local LOOK = 1

local function now_in_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the first wait and the record; nil for what is not there.
local function front(queue)
  local first = redis.pcall('ZRANGE', queue, 0, 1)
  if string.sub(first[1] or '', 1, 1) == '*' then return first[2], first[1] end
  return first[1]
end

-- Returns an error if a newer version has entered waits in another layout.
local function newer_layout(record)
  local number = string.match(record or '', '^%*(%d+) ')
  if number and number ~= '2' then
    return redis.error_reply('LAYOUT a newer version of redlock-sync waits for this lock. Its queue has the layout '
      .. number .. ', and this version knows 2: use one version in all programs that share the lock')
  end
end

-- Returns `began`, `pause` and `met`.
local function read(record)
  local began, pause, met = string.match(record or '', '^%*2 (%d+) (%d+) (%d+)$')
  return tonumber(began or 0), tonumber(pause or 0), tonumber(met or 0)
end

-- Replaces the record. The new one comes first, so the queue is never empty and keeps its time to live.
local function write(queue, record, began, pause, met)
  local new = string.format('*2 %.0f %.0f %.0f', began, pause, met)
  redis.call('ZADD', queue, 0, new)
  if record and record ~= new then redis.call('ZREM', queue, record) end
end

-- Lets a queue without a wait end soon.
local function end_without_wait(queue, first, record)
  if record and not first and redis.call('PTTL', queue) > REMAINS then redis.call('PEXPIRE', queue, REMAINS) end
end

-- Returns the remaining ms of a pause; nil if none goes on. If the clock was set back, none does.
local function pause_left(pause, now)
  local left = pause - now
  if left > 0 and left <= LONG_PAUSE then return left end
end

-- Returns after what time the first wait is to try again in a pause that lasts for so long.
local function next_try(left)
  return left > PAUSE and LOOK or left
end

-- Returns the length of a pause that is due: one in each second of contention, and every twelfth one is long. All are
-- long for a minute after another program had the lock. Returns nil if none is due. If the clock was set back, the
-- contention began long ago.
local function due_pause(began, pause, met, now)
  local last = math.max(began <= now and began or 1, pause <= now and pause or 0)
  if began == 0 or now - last <= CONTENDED then return end
  local was_met = met > 0 and met <= now and now - met < MET_FOR
  local is_long = was_met or math.floor((now - began) / 1000) % LONG_EVERY == LONG_EVERY - 1
  return is_long and LONG_PAUSE or PAUSE
end

