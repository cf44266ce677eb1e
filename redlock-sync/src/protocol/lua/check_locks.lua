-- Checks locks for which threads of this client wait.
-- KEYS[1] and more: the locks
-- ARGV[1] and more, one for each lock: the id of the wait, if the key is a string; `?` and a wait that must be in this
-- queue; empty for a sorted set that must exist; `*` for a sorted set whose first member may have ended
-- replies a list: `i` for each KEYS[i] that needs an attempt now: it is free, was granted to that wait, has lost it, or
--         is a set with a member that has ended. For each other `*`, {i, ms until the first member of KEYS[i] ends}
local reply, strings, sets, present = {}, {}, {}, {}
for i, key in ipairs(KEYS) do
  local wait = string.match(ARGV[i], '^%?(.*)')
  -- A user who may not run ZSCORE does not learn of it.
  if wait and not redis.pcall('ZSCORE', key, wait) then reply[#reply + 1] = i end
  local kind = ARGV[i] == '' and present or ARGV[i] == '*' and sets or strings
  if not wait then kind[#kind + 1] = i end
end

local function keys_of(places)
  local keys = {}
  for n, i in ipairs(places) do keys[n] = KEYS[i] end
  return keys
end

local function due(i) reply[#reply + 1] = i end

if strings[1] then
  for n, held in ipairs(redis.call('MGET', unpack(keys_of(strings)))) do
    local i = strings[n]
    if not held or string.sub(held, 33) == ':granted:' .. ARGV[i] then due(i) end
  end
end
-- Usually all of them exist.
if present[1] and redis.call('EXISTS', unpack(keys_of(present))) < #present then
  for _, i in ipairs(present) do
    if redis.call('EXISTS', KEYS[i]) == 0 then due(i) end
  end
end
if sets[1] then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for _, i in ipairs(sets) do
    local first = tonumber(redis.pcall('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2] or 0)
    if first < now then due(i) else reply[#reply + 1] = {i, first - now} end
  end
end
return reply
