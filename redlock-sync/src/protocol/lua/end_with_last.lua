-- A function for the scripts that release permits and read-write locks, and for their fast paths. It uses no key and no
-- argument by itself.
-- Lets a sorted set of holders expire with its last member. An acquire lengthens the life of the key to the end of its
-- lease. So each release shortens it again: the released holder may have had the longest lease. While a cluster moves
-- the slot, the server refuses to read a key that is gone. Then there is no last member.
local function end_with_last(key)
  local ends = redis.pcall('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
  if ends then
    local time = redis.call('TIME')
    redis.call('PEXPIRE', key, math.max(1, ends - time[1] * 1000 - math.floor(time[2] / 1000)))
  end
end

