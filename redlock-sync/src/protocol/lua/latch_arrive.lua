-- Stores arrivals at a latch, and notifies the waits once it is open. Safe to execute twice: a stored arrival counts
-- once. A full server (maxmemory) refuses the first write. The mark that the latch is open is an exception, since the
-- waits could not continue without it.
-- The latch is a sorted set. Its scores are later than any time, so other kinds of lock take its members for holders
-- without an end. They are exact numbers below 2^53, since not every server writes larger ones as its Lua reads them.
-- KEYS[1] latch, KEYS[2] its waits
-- ARGV[1] number of arrivals that open it, ARGV[2] ms for which it is kept at least, ARGV[3..] arrivals; `!` is the
-- mark that it is open; the last argument may be that of permissions.lua
-- replies 1
-- include permissions, push
local key, waits = KEYS[1], KEYS[2]
local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
if first.err then return first end
if first[2] and tonumber(first[2]) < 9e15 then
  return redis.error_reply('WRONGTYPE the key holds a lock that is no latch')
end
local is_marked = first[1] == '!'
local count = redis.call('ZCARD', key) - (is_marked and 1 or 0)
local function keep()
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))
end

if ARGV[3] == '!' then keep() end
for i = 3, #ARGV do
  if ARGV[i] == '!' then
    redis.call('ZADD', key, '9000000000000001', '!')
    is_marked = true
  elseif count < 10000 then
    -- No latch needs more arrivals than this count.
    count = count + redis.call('ZADD', key, 'NX', '9000000000000002', ARGV[i])
  end
end
keep()
if is_marked or count >= tonumber(ARGV[1]) then
  -- Publishes one push for each channel, to the waits that have not ended. These are the last members. A push to
  -- several waits is `channel/number,number`. A client that cannot parse it makes its own check within a second, since
  -- the set of its waits no longer exists then.
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local channels, waits_of, from = {}, {}, 0
  repeat
    local page = redis.pcall('ZREVRANGE', waits, from, from + 999, 'WITHSCORES')
    for i = 1, #page, 2 do
      if tonumber(page[i + 1]) < now then page = {} break end
      local channel, number = string.match(page[i], '^([^/]*)/(.*)$')
      if channel and not waits_of[channel] then
        channels[#channels + 1] = channel
        waits_of[channel] = {}
      end
      if channel then table.insert(waits_of[channel], number) end
    end
    from = from + 1000
  until #page < 2000
  for _, channel in ipairs(channels) do push(channel .. '/' .. table.concat(waits_of[channel], ','), '0 0 ') end
  redis.call('DEL', waits)
end
return told(1)
