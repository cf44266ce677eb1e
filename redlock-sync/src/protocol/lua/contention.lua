-- Functions for the scripts of a mutex that others wait for. They use no key and no argument by themselves.
-- The queue of a mutex is a sorted set. A wait is the member `id random`. Its id is `channel/number`, or `-ms:random` if
-- it polls (push.lua). Its score is one higher than that of the last wait.
-- The first member is the record `*2 began met`. 2 is the number of this layout: an attempt of a client that does not
-- know the number is refused. `began` is when the lock was first handed over; 0: not yet. `met` is when a program of
-- another library was last seen to hold the lock; 0: never. The negative score of the record is when the next pause is
-- due; 0: the lock was not handed over yet. All times are ms of the server's clock.
-- In a pause the lock is left to programs of other libraries, which poll it. No attempt or release of this library gives
-- it to a wait. A pause ends a second before the next one is due.
-- The record outlives the last wait by a second. So it is not lost where the queue is empty for a moment. While threads
-- of one process hand the lock to each other, it lasts as long as a queue with waits.

local CONTENDED, PAUSE, LONG_PAUSE, LONG_EVERY, MET_FOR, REMAINS = 1000, 10, 250, 12, 60000, 1000
-- The time to live of a queue, in ms: QUEUE_LIFETIME in rules.rs.
local LIFETIME = 3600000
-- In a long pause, the first wait tries again after this time, and so meets a program that has taken the lock.
local LOOK = 1

local function now_in_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the first wait, the record, and when the next pause is due. The first two are nil if they are not there.
local function front(queue)
  local first = redis.pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
  if string.sub(first[1] or '', 1, 1) == '*' then return first[3], first[1], -first[2] end
  return first[1], nil, 0
end

-- Sets when the next pause is due.
local function set_due(queue, record, due)
  redis.call('ZADD', queue, string.format('%.0f', -due), record)
end

-- Replaces the record. The new one comes first, so the queue is never empty and keeps its time to live.
local function replace(queue, record, new, due)
  set_due(queue, new, due)
  if record and record ~= new then redis.call('ZREM', queue, record) end
end

-- Records that the lock is handed over for the first time.
local function begin(queue, record, now)
  local began = string.format('*2 %.0f ', now)
  replace(queue, record, began .. (string.match(record or '', '%d+$') or '0'), now + CONTENDED)
end

-- Returns the remaining ms of a pause; nil if none goes on. If the clock was set back, none does.
local function pause_left(due, now)
  local left = due - CONTENDED - now
  if left > 0 and left <= LONG_PAUSE then return left end
end

-- Returns the length of a pause that is due; nil if none is. If the clock was set back, one is. The pauses are long in
-- each twelfth second, and for a minute after a program of another library had the lock.
local function due_pause(record, due, now)
  if due == 0 or now < due and due - now <= CONTENDED + LONG_PAUSE then return end
  local began, met = string.match(record, '^%*2 (%d+) (%d+)$')
  began, met = tonumber(began or 0), tonumber(met or 0)
  local was_met = met > 0 and met <= now and now - met < MET_FOR
  local is_long = was_met or math.floor((now - began) / 1000) % LONG_EVERY == LONG_EVERY - 1
  return is_long and LONG_PAUSE or PAUSE
end

-- Returns after what time the first wait is to try again in a pause that lasts for so long.
local function next_try(left)
  return left > PAUSE and LOOK or left
end

-- Lets a queue without a wait end soon.
local function end_without_wait(queue, first, record)
  if record and not first and redis.call('PTTL', queue) > REMAINS then redis.call('PEXPIRE', queue, REMAINS) end
end

