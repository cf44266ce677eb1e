-- Functions for the scripts of a queue: they read and write tasks. They use no key and no argument by themselves.
-- A place is the member of a task in the sets `due` and `dead`: the time of its first push, in us as 16 digits, and its
-- id. Tasks that are due at one time are claimed in the order of their places.
-- The hash `tasks` has these fields for a task. `b:id` has the digits of its place, and its body. `s:id` has its state,
-- `digits attempts version again fence token why`. `n:id` has the body of a push that replaces it after its claim.
-- Times are in us. `again` is the time at which the task must run once more after the current claim (0: it need not).
-- The token is that of its claim (`-`: none). `why` is the last error. A task that was never claimed needs no state. A
-- state that cannot be parsed counts as none, so that the task still runs. A task without a body dies.
-- The field `paused` of that hash exists while the queue is paused.

local NO_BODY = 'its body is missing'

local function n(x) return string.format('%.0f', x) end

local function id_of(place) return string.sub(place, 17) end

-- Returns the digits with which a place, a body or a state begins.
local function digits_of(text)
  return string.match(text or '', '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')
end

-- Returns the place of a task that is queued or dead.
local function place_of(tasks, id)
  local digits = digits_of(redis.call('HGET', tasks, 'b:' .. id)) or digits_of(redis.call('HGET', tasks, 's:' .. id))
  return digits and digits .. id
end

-- Returns the state of a task, if it has one.
local function state_of(tasks, place)
  local state = redis.call('HGET', tasks, 's:' .. id_of(place))
  return digits_of(state) == digits_of(place) and state or nil
end

-- Returns the body of a task with its digits, if there is one. The second value is true if the body was removed by
-- hand, and a later push has brought a task with another place.
local function text_of(tasks, place)
  local text = redis.call('HGET', tasks, 'b:' .. id_of(place))
  local digits = digits_of(text)
  local is_own = digits == digits_of(place)
  return is_own and text, digits and not is_own
end

local function read(state)
  local attempts, version, again, fence, token, why =
    string.match(state or '', '^%d+ (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not attempts then return 0, 1, 0, '0', '-', '' end
  return tonumber(attempts), tonumber(version), tonumber(again), fence, token, why
end

local function write(tasks, place, attempts, version, again, fence, token, why)
  local numbers = string.sub(place, 1, 16) .. ' ' .. n(attempts) .. ' ' .. n(version) .. ' ' .. n(again)
  redis.call('HSET', tasks, 's:' .. id_of(place), numbers .. ' ' .. fence .. ' ' .. token .. ' ' .. why)
end

-- Returns the text, with its digits, that replaces the task at the end of its claim.
local function next_text(tasks, place, again, token)
  local body = again > 0 and token ~= '-' and redis.call('HGET', tasks, 'n:' .. id_of(place))
  return body and string.sub(place, 1, 16) .. body
end

-- Removes the claim of a task.
local function forget(tasks, claims, id, token)
  if token == '-' then return end
  redis.call('HDEL', claims, token)
  redis.call('HDEL', tasks, 'n:' .. id)
end

-- Removes a task, but not its claim. If there is a later task with the same id, what is stored of that one stays.
local function drop(set, tasks, place)
  local id = id_of(place)
  redis.call('ZREM', set, place)
  local digits = digits_of(redis.call('HGET', tasks, 's:' .. id))
  if not digits or digits == digits_of(place) then redis.call('HDEL', tasks, 'b:' .. id, 's:' .. id) end
end

-- Queues a task as new that was pushed while it was claimed. If that push has replaced the task, the task gets the new
-- body.
local function begin_anew(due, tasks, place, version, at, text)
  if text then redis.call('HSET', tasks, 'b:' .. id_of(place), text) end
  write(tasks, place, 0, version, 0, '0', '-', '')
  redis.call('ZADD', due, n(at), place)
end

-- Removes up to ten of the tasks that have been dead for longest: those that are more than `most`, and those that have
-- been dead for more than `age` ms (empty: no limit).
local function trim(tasks, dead, now, most, age)
  local since = age ~= '' and now - age * 1000
  for _ = 1, 10 do
    local oldest = redis.call('ZRANGE', dead, 0, 0, 'WITHSCORES')
    local is_old = since and oldest[1] and tonumber(oldest[2]) < since
    if not is_old and redis.call('ZCARD', dead) <= tonumber(most) then return end
    drop(dead, tasks, oldest[1])
  end
end

-- Moves a task to the dead tasks.
local function bury(due, tasks, dead, place, now, most, age)
  redis.call('ZREM', due, place)
  redis.call('ZADD', dead, n(now), place)
  trim(tasks, dead, now, most, age)
end
