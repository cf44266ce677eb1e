-- A function for the scripts that grant a mutex. Included after fence_counter.lua and push.lua. It uses no key and no
-- argument by itself.
-- A granted lock has the token `random:granted:id`, where `id` is that of the wait.

-- Grants the lock to a wait. The key is set before the push is published, so the push is true when it arrives. The
-- random part is the wait's own, unless it is given. `life` is for how many ms the fence counter is kept after the clock
-- has reached it ('0': no fence is wanted). A wait that polls has to make its attempt within 300 ms. Returns the value
-- that `push` returns.
local function grant(key, queue, counter, wait, random, span, life)
  local id, own = string.match(wait, '^([^ ]+) (%x+)$')
  -- An entry of another layout.
  if not id then return 0 end
  random = random or own
  local polls = string.sub(wait, 1, 1) == '-'
  if polls and push(wait, '', queue) == 0 then return 0 end
  redis.call('SET', key, random .. ':granted:' .. id, 'PX', polls and 300 or span)
  if polls then return 1 end
  -- If the counter cannot rise, the next holder gets the error when it asks for a fence.
  local fence = life ~= '0' and not fence_error(counter) and raise(counter, 0, life) or '0'
  local receivers = push(wait, fence .. ' ' .. span .. ' ' .. random .. ' ' .. key)
  -- The wait gets a hint from the client of this script, and makes an attempt, as one that polls does.
  if untold then redis.call('PEXPIRE', key, 300) end
  return receivers
end

