-- Gives permits up if their token still has them, and gives free slots to the first waits (slots.lua). Also removes a
-- wait from the queue, and passes the slots that were reserved for it to the next wait. A full server (maxmemory) does
-- not refuse the first write.
-- KEYS[1] semaphore, KEYS[2] queue; or KEYS[1] only, while a cluster moves its slot: then no wait is notified
-- ARGV[1] token (may be empty), ARGV[2] its slots (empty: not known), ARGV[3] number of permits, ARGV[4] ms for which a
-- slot is reserved (0: there are several nodes)
-- The following are present only if one of them differs from its default in brackets: ARGV[5] own wait (empty), ARGV[6]
-- ms to keep the permits (0: given up now)
-- replies 1 given up, 5 the same where only the semaphore's key was named, 0 another token has one of the slots, -1 the
--         token lacks one of them
-- include end_with_last

local key, queue, token = KEYS[1], KEYS[2], ARGV[1]

-- The fast path: the release of the only slot of a lease, while there is no wait. It does nothing if the token does not
-- have that slot.
if not ARGV[5] and (not queue or redis.call('EXISTS', queue) == 0) then
  local left = redis.pcall('ZREM', key, ARGV[2] .. ' ' .. token)
  if left == 1 then end_with_last(key) end
  if left == 1 and not queue then return 5 end
  if left ~= 0 then return left end
end

-- include push, slots
local keep, wait = tonumber(ARGV[6] or 0), ARGV[5] or ''
local now = in_ms(redis.call('TIME'))
if wait ~= '' and queue then
  redis.pcall('ZREM', queue, wait)
  mark(queue, wait, true)
end
local lent, failure = read_lent(key, now)
if failure then return failure end
local given = 0
local reservation_of_wait = wait ~= '' and RESERVED .. wait
local slots, set = slots_of(ARGV[2])
for at, other in pairs(lent.tokens) do
  if other == token or other == reservation_of_wait then
    if other == token and (#slots == 0 or set[at]) then given = given + 1 end
    if keep > 0 and other == token and (#slots == 0 or set[at]) then
      redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
      redis.call('ZADD', key, now + keep, at .. ' ' .. token)
      lent.first = math.min(lent.first or math.huge, now + keep)
      if queue then hint(queue, ARGV[6]) end
    else
      redis.call('ZREM', key, at .. ' ' .. other)
      lent.tokens[at] = nil
    end
  end
end
local reply = given > 0 and given >= #slots and (queue and 1 or 5) or -1
for _, slot in ipairs(slots) do
  if lent.tokens[slot] and lent.tokens[slot] ~= token then reply = 0 end
end
if queue and redis.call('EXISTS', queue) == 1 then
  purge(key, now)
  local free = search(lent, tonumber(ARGV[3]), 0)
  remove(queue, (serve(key, queue, '', lent, free, now, tonumber(ARGV[4]))))
end
end_with_last(key)
return told(reply)
