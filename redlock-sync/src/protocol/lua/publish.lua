-- Publishes on a channel: to see that a subscription is there, or to wake the thread that listens. On the way it looks after locks for which
-- threads of this client wait.
-- KEYS[1] and more: such locks, if any
-- ARGV[1] channel, ARGV[2] text, ARGV[3] and more: the wait for each of these locks
-- replies the number of connections that receive the text; with locks, a list of that number and of the places of the locks that are free, were
--         granted to that very wait, or have several holders, one of which has come to its end (a sorted set with their ends in ms)
local receivers = redis.call('PUBLISH', ARGV[1], ARGV[2])
if #KEYS == 0 then return receivers end
local reply = {receivers}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i, held in ipairs(redis.call('MGET', unpack(KEYS))) do
  -- Of a sorted set it says nothing.
  local first = not held and redis.pcall('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  if not held and tonumber(first or 0) < now or held and string.sub(held, 33) == ':granted:' .. ARGV[i + 2] then reply[#reply + 1] = i end
end
return reply
