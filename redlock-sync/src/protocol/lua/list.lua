-- Lists keys that are held locks, with their holders. It lists named keys or a page of all keys. Latches and queues of
-- tasks are listed with their numbers. Sets nothing. It must not block the server for long, no matter what the keys
-- hold. So it copies little of each key and stops after 2 ms. The client then names the keys that are left. A token of
-- another library looks like any other string, so it counts as a lock only if a user named its key.
-- KEYS[1] and more: the keys to list; without any, a page of all keys
-- ARGV[1] cursor of the page, ARGV[2..] patterns as of SCAN; or, with keys: ARGV[1] 1 if a user named them or 0,
-- ARGV[2] members of each that were listed before
-- replies {1, next cursor, and for each holder its key, kind, token, remaining ms (-1 without end)}
-- Kinds are `mutex`, `rw` and `semaphore`; `other` for a key that a user named and that holds something else; and
-- `more` for a key that was not listed completely, with the number of members that were. Other kinds have these texts
-- in the place of the token:
-- `waits`: the number of waits in the queue of a lock; `latch`: the number of arrivals, and `!` if it is marked as
-- open;
-- `queue`: the numbers of all tasks, of tasks that are due, of claims and of dead tasks, for how many us the first task
-- has been due, and 1 if the queue is paused; or an error;
-- `took`, which belongs to no key: the us for which the script ran
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local OURS = string.rep('%x', 32) .. ':'
local TOKEN, HOLDER, PERMIT = '^' .. OURS, '^[rw]' .. OURS, '^%d+ ' .. OURS
-- The number of members of one set, and of keys, that one call reads. No token of this library is longer than LONGEST.
local MEMBERS, KEYS_OF_PAGE, LONGEST = 100, 100, 255
local reply = {1, '0'}

-- Returns for how many us the script has run. Many servers stop TIME while a script runs, but not the clock of their
-- processor. Redis 6 has no such clock, and raises an error for a name that it does not know.
local has_clock, clock = pcall(function() return os.clock end)
local began = has_clock and clock() or 0
local function took()
  local now = redis.call('TIME')
  return math.max((now[1] - time[1]) * 1000000 + now[2] - time[2], has_clock and (clock() - began) * 1000000 or 0)
end

local function tell(key, kind, token, ms)
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = key, kind, token, ms
end

-- Returns the string of a key, or enough of it to show whether it is a token. Returns an error for another type, or for
-- a key that this user may not read.
local function value(key, is_named)
  if is_named then return redis.pcall('GET', key) end
  local text = redis.pcall('GETRANGE', key, 0, LONGEST)
  -- A server that lets scripts read only the keys of their call cannot list: this raises its error.
  if type(text) == 'table' and string.find(text.err, 'undeclared') then return redis.call('GET', key) end
  -- If the user may not run that command, the whole string is read.
  if type(text) == 'table' and not string.find(text.err, '^WRONGTYPE') then return redis.pcall('GET', key) end
  return text
end

-- Returns the part before `due` or `dead` in the name of a key of a task queue. No lock has such a name (names.rs).
local function queue_of(key)
  -- For most keys, the function returns here. This search is quicker than the patterns below.
  if not string.find(key, ':q2:d', 1, true) then return nil end
  local base = string.match(key, '^(.*:q2:)due$') or string.match(key, '^(.*:q2:)dead$')
  local owner = base and string.sub(base, 1, -5)
  return owner and (string.find(owner, '^{[^}]+}$') or string.find(owner, '^[^{]*{[^}]+}.*:$')) and base
end

-- A claim that is over is found only when its task is claimed again. Until then, the task is due, and the claim still
-- counts. So fewer claims may run than the listed number.
local function tasks_of(base)
  local micros = time[1] * 1000000 + time[2]
  local all = redis.pcall('ZCARD', base .. 'due')
  local due = redis.pcall('ZCOUNT', base .. 'due', '-inf', string.format('%.0f', micros))
  local claims, dead = redis.pcall('HLEN', base .. 'claims'), redis.pcall('ZCARD', base .. 'dead')
  local first = redis.pcall('ZRANGE', base .. 'due', 0, 0, 'WITHSCORES')
  local is_paused = redis.pcall('HGET', base .. 'tasks', 'paused')
  for _, reply in ipairs({all, due, claims, dead, first, is_paused or 0}) do
    if type(reply) == 'table' and reply.err then return reply.err end
  end
  local age = first[2] and math.max(0, micros - first[2]) or 0
  return string.format('%d %d %d %d %.0f %d', all, due, math.min(claims, all - due), dead, age, is_paused and 1 or 0)
end

local MUTEX, LATCH, SET = {'waits'}, {'latch_waits'}, {'permit_queue', 'readers', 'writers'}
-- Lists the number of waits in these queues beside a lock (names.rs). A member that begins with `*` is not a wait.
local function tell_waits(key, names)
  local has_tag = string.find(key, '{', 1, true) and string.find(key, '^[^{]*{[^}]+}')
  local beside, all = has_tag and key .. '::' or '{' .. key .. '}:', 0
  for _, name in ipairs(names) do
    local number = redis.pcall('ZCARD', beside .. name)
    if type(number) == 'number' and number > 0 then
      local first = redis.pcall('ZRANGE', beside .. name, 0, 0)[1] or ''
      all = all + number - (string.sub(first, 1, 1) == '*' and 1 or 0)
    end
  end
  if all > 0 then tell(key, 'waits', string.format('%d', all), 0) end
end

-- Returns the kind of a sorted set, by the member with the highest score. The scores of a latch are later than any time
-- (latch_arrive.lua).
local function kind_of(member, score)
  if string.find(member, HOLDER) then return 'rw' end
  if string.find(member, PERMIT) then return 'semaphore' end
  return (score == 9e15 + 1 or score == 9e15 + 2) and 'latch'
end

local function list_key(key, is_named, from)
  local token = from == 0 and value(key, is_named)
  -- Such a key is listed as a task queue, no matter what it holds, since that queue cannot use it.
  local base = not is_named and token ~= '' and queue_of(key)
  if type(token) == 'string' and not base then
    if is_named or #token <= LONGEST and string.find(token, TOKEN) then
      tell(key, 'mutex', token, redis.call('PTTL', key))
      tell_waits(key, MUTEX)
    end
    return
  end
  if from == 0 and not token then return end
  if base then return tell(key, 'queue', tasks_of(base), 0) end
  -- The first member shows whether this library made the set.
  local first = redis.pcall('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  local kind = not first.err and first[1] and kind_of(first[1], tonumber(first[2]))
  if kind == 'latch' then
    local is_open = type(redis.pcall('ZSCORE', key, '!')) == 'string'
    local arrivals = redis.call('ZCARD', key) - (is_open and 1 or 0)
    tell(key, 'latch', string.format('%d', arrivals) .. (is_open and '!' or ''), redis.call('PTTL', key))
    return tell_waits(key, LATCH)
  end
  if kind and from == 0 then tell_waits(key, SET) end
  local some = kind and redis.pcall('ZREVRANGE', key, from, from + MEMBERS - 1, 'WITHSCORES') or {}
  local left = 0
  for i = 1, #some, 2 do
    left = tonumber(some[i + 1]) - now
    -- The members after this one have ended too.
    if left < 0 then break end
    tell(key, kind, some[i], left)
  end
  if #some == 2 * MEMBERS and left >= 0 then tell(key, 'more', string.format('%d', from + MEMBERS), 0) end
  if not kind and is_named and from == 0 then tell(key, 'other', '', 0) end
end

local keys, is_named, from = KEYS, ARGV[1] == '1', tonumber(ARGV[2]) or 0
if not KEYS[1] then
  local is_there = {}
  keys, is_named, from = {}, false, 0
  -- One call scans for all patterns, so that each pattern covers the same part of the keys and ends at the same cursor.
  for i = 2, #ARGV do
    local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[i], 'COUNT', KEYS_OF_PAGE)
    reply[2] = page[1]
    for _, key in ipairs(page[2]) do
      if not is_there[key] then keys[#keys + 1] = key end
      is_there[key] = true
    end
  end
end
local is_late = false
for i, key in ipairs(keys) do
  if is_late then
    tell(key, 'more', string.format('%d', from), 0)
  else
    list_key(key, is_named, from)
    is_late = i % 4 == 0 and took() > 2000
  end
end
tell('', 'took', string.format('%.0f', took()), 0)
return reply
