-- Names the holders of a read-write lock: one writer, or at most a thousand readers. Also names a reservation for a
-- wait.
-- KEYS[1] lock
-- replies {1, `r` or `w` and token, remaining ms, ...} with these two for each holder, or {0}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = redis.pcall('ZREVRANGE', KEYS[1], 0, 999, 'WITHSCORES')
if all.err then return all end
if all[1] and not string.find(all[1], '^[rw]') then
  return redis.error_reply('WRONGTYPE the sorted set is no read-write lock')
end
local reply = {1}
for i = 1, #all, 2 do
  local left = tonumber(all[i + 1]) - now
  if left >= 0 then
    reply[#reply + 1] = all[i]
    reply[#reply + 1] = left
  end
end
return #reply > 1 and reply or {0}
