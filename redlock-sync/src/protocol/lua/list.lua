-- Tells which keys are locks that are held, and their holders: of one key, or of a page of all keys. Queues of tasks are told by their keys. Sets nothing.
-- A token of another library looks like any other string, so it counts as a lock only where its key is named.
-- KEYS[1] a key; without one a page of all keys is looked at
-- ARGV[1] cursor of the page, ARGV[2] pattern as of SCAN
-- replies {1, next cursor, and for each holder its key, kind, token, remaining ms (-1 without end)}; kinds are `mutex`, `rw`, `semaphore`, `queue` and, for a
-- key that is named and holds something else, `other`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local OURS = string.rep('%x', 32) .. ':'
local reply = {1, '0'}

local function tell(key, kind, token, ms)
  for _, word in ipairs({key, kind, token, ms}) do reply[#reply + 1] = word end
end

local function look(key)
  local token = redis.pcall('GET', key)
  if type(token) == 'string' then
    if KEYS[1] or string.find(token, '^' .. OURS) then tell(key, 'mutex', token, redis.call('PTTL', key)) end
    return
  end
  if not token then return end
  if not KEYS[1] and string.find(key, ':q:d%l+$') then return tell(key, 'queue', '', 0) end
  local all = redis.pcall('ZREVRANGE', key, 0, 999, 'WITHSCORES')
  local first = not all.err and all[1] or ''
  local kind = string.find(first, '^[rw]' .. OURS) and 'rw' or string.find(first, '^%d+ ' .. OURS) and 'semaphore'
  for i = 1, kind and #all or 0, 2 do
    local left = tonumber(all[i + 1]) - now
    if left >= 0 then tell(key, kind, all[i], left) end
  end
  if not kind and KEYS[1] then tell(key, 'other', '', 0) end
end

local keys = {KEYS[1]}
if not KEYS[1] then
  local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500)
  reply[2], keys = page[1], page[2]
end
for _, key in ipairs(keys) do look(key) end
return reply
