-- Gives up many locks in one step, each if its token still holds it; the first wait is told to try. Nothing is granted: this is for locks whose
-- release went unconfirmed, and for a client that gives up all it has. The first write is one that a full server (maxmemory) does not
-- refuse. What was granted to a wait that is named is given up with it.
-- KEYS[1] lock, KEYS[2] its queue; then the same two of each further lock
-- ARGV[1] token of the first lock, ARGV[2] ms to keep its key (0 gives it up now), ARGV[3] its holder's own wait (may be empty); then the
-- same three of each further lock
-- replies a list with one number for each lock: 1 given up, 0 something else holds it, -1 there is no key
local said = {}
for i = 1, #ARGV / 3 do
  local key, queue = KEYS[2 * i - 1], KEYS[2 * i]
  local token, keep, wait = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  -- Else a later release would grant the lock to a wait that is over.
  if wait ~= '' then redis.pcall('ZREM', queue, wait) end
  local held = redis.pcall('GET', key)
  if held == false then
    said[i] = -1
  elseif held ~= token and (wait == '' or type(held) == 'table' or string.sub(held, 33) ~= ':granted:' .. wait) then
    said[i] = 0
  else
    if keep ~= '0' then redis.call('PEXPIRE', key, keep) else redis.call('DEL', key) end
    hint(queue, keep, '0 0')
    said[i] = 1
  end
end
return said
