-- Gives up many locks in one step, each if its token still holds it; a waiter is told to try at once. Nothing is granted: this is for locks
-- whose release went unconfirmed, and for a client that gives up all it has. The first write is one that a full server (maxmemory) does not
-- refuse.
-- KEYS[1] lock, KEYS[2] its wake list, KEYS[3] its waiting; then the same three of each further lock
-- ARGV[1] token of the first lock, ARGV[2] ms to keep its key (0 gives it up now), ARGV[3] id of its holder's waiter (may be empty); then the
-- same three of each further lock
-- replies a list with one number for each lock: 1 given up, 0 something else holds it, -1 there is no key
local said = {}
for i = 1, #ARGV / 3 do
  local key, wake, waiting = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local token, keep, waiter = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  -- Else a later release would grant the lock to a waiter that is gone.
  if waiter ~= '' then redis.pcall('ZREM', waiting, waiter) end
  local held = redis.pcall('GET', key)
  if held == false then
    said[i] = -1
  elseif held ~= token then
    said[i] = 0
  else
    if keep ~= '0' then redis.call('PEXPIRE', key, keep) else redis.call('DEL', key, wake) end
    if redis.call('EXISTS', waiting) == 1 then
      redis.call('DEL', wake)
      redis.call('RPUSH', wake, '0 0 ' .. keep .. ' ')
      redis.call('PEXPIRE', wake, keep + 1000)
    end
    said[i] = 1
  end
end
return said
