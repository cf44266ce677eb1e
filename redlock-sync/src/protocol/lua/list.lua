-- Tells which keys are locks that are held, and their holders: of keys that are named, or of a page of all keys. Queues of tasks are told by their keys. Sets
-- nothing. Meant not to hold the server up, whatever its keys hold: it copies little of each, and stops after 2 ms; what is left is asked for by its name.
-- A token of another library looks like any other string, so it counts as a lock only where its key was named by a user.
-- KEYS[1] and further ones: keys; without any a page of all keys is looked at
-- ARGV[1] cursor of the page, ARGV[2] pattern as of SCAN; or, with keys: ARGV[1] 1 if a user named them or 0, ARGV[2] members of each that were told before
-- replies {1, next cursor, and for each holder its key, kind, token, remaining ms (-1 without end)}; kinds are `mutex`, `rw`, `semaphore`, `queue`, for a
-- key that a user named and that holds something else `other`, and for one of which not all was told `more`, with the number of members that were
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local OURS = string.rep('%x', 32) .. ':'
-- Members of one set, and keys, that one call looks at. No token of this library is longer than that.
local MEMBERS, KEYS_OF_PAGE, LONGEST = 100, 100, 255
local reply = {1, '0'}

local function tell(key, kind, token, ms)
  for _, word in ipairs({key, kind, token, ms}) do reply[#reply + 1] = word end
end

-- The string there, or as much of it as tells whether it is a token; an error for another type, or for a key that this user may not read.
local function value(key, is_named)
  if is_named then return redis.pcall('GET', key) end
  local text = redis.pcall('GETRANGE', key, 0, LONGEST)
  -- Without the right to that command the whole is read.
  if type(text) == 'table' and not string.find(text.err, '^WRONGTYPE') then return redis.pcall('GET', key) end
  return text
end

-- The tasks of a queue are at this key, or its dead ones; no lock has such a name (names.rs).
local function is_key_of_queue(key)
  local owner = string.match(key, '^(.*):q:due$') or string.match(key, '^(.*):q:dead$')
  return owner and (string.find(owner, '^{[^}]+}$') or string.find(owner, '^[^{]*{[^}]+}.*:$'))
end

local function look(key, is_named, from)
  local token = from == 0 and value(key, is_named)
  -- Such a key is shown with the queue that it is in the way of, whatever it holds.
  local is_of_queue = not is_named and is_key_of_queue(key) and token ~= ''
  if type(token) == 'string' and not is_of_queue then
    if is_named or #token <= LONGEST and string.find(token, '^' .. OURS) then tell(key, 'mutex', token, redis.call('PTTL', key)) end
    return
  end
  if from == 0 and not token then return end
  if is_of_queue then return tell(key, 'queue', '', 0) end
  -- The first member tells whether the set is one of ours.
  local first = redis.pcall('ZREVRANGE', key, 0, 0)
  first = not first.err and first[1] or ''
  local kind = string.find(first, '^[rw]' .. OURS) and 'rw' or string.find(first, '^%d+ ' .. OURS) and 'semaphore'
  local some = kind and redis.pcall('ZREVRANGE', key, from, from + MEMBERS - 1, 'WITHSCORES') or {}
  local left = 0
  for i = 1, #some, 2 do
    left = tonumber(some[i + 1]) - now
    -- Those behind it have ended, too.
    if left < 0 then break end
    tell(key, kind, some[i], left)
  end
  if #some == 2 * MEMBERS and left >= 0 then tell(key, 'more', string.format('%d', from + MEMBERS), 0) end
  if not kind and is_named and from == 0 then tell(key, 'other', '', 0) end
end

local keys, is_named, from = KEYS, ARGV[1] == '1', tonumber(ARGV[2]) or 0
if not KEYS[1] then
  local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', KEYS_OF_PAGE)
  reply[2], keys, is_named, from = page[1], page[2], false, 0
end
local is_late = false
for _, key in ipairs(keys) do
  if is_late then
    tell(key, 'more', string.format('%d', from), 0)
  else
    look(key, is_named, from)
    local passed = redis.call('TIME')
    is_late = (passed[1] - time[1]) * 1000000 + passed[2] - time[2] > 2000
  end
end
return reply
