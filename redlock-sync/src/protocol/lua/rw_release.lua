-- Releases a read-write lock if the token holds it. If it was the last holder, the waits whose turn it is get the lock
-- (rw.lua). With an empty token, it removes a wait from its queue, and the reservation of that wait. A full server
-- (maxmemory) does not refuse the first write.
-- KEYS[1] lock, KEYS[2] queue of the readers, KEYS[3] fence counter, KEYS[4] queue of the writers; or KEYS[1] only,
-- while a cluster moves its slot: then no wait is notified
-- ARGV[1] token (may be empty), ARGV[2] `r` or `w`, ARGV[3] 1 with several nodes (may be absent)
-- The following are present only if one of them differs from its default in brackets: ARGV[4] own wait (empty), ARGV[5]
-- ms for which the token still holds the lock (0: released now), ARGV[6] (1) 1 for a hold or a wait that ends in order,
-- 0 for an attempt that is taken back: a writer that was in for a moment on one of several nodes has not had its turn.
-- A reader that is still a writer on this node is released as a writer.
-- replies 1 released, 5 the same where only the lock's key was named, 0 the token does not hold it and a holder that
--         excludes it does, -1 the token does not hold it
-- include end_with_last

local token, letter, wait, keep = ARGV[1], ARGV[2], ARGV[4] or '', ARGV[5] or '0'
local own = letter .. token

-- The fast path: a release while there is no wait.
if wait == '' and keep == '0' and (not KEYS[2] or redis.call('EXISTS', KEYS[2], KEYS[4]) == 0) then
  local left = redis.pcall('ZREM', KEYS[1], own)
  if left == 1 then end_with_last(KEYS[1]) end
  if left == 1 and not KEYS[2] then return 5 end
  if left ~= 0 then return left end
end

-- include push, rw
local several = ARGV[3] == '1'
local failure = failure_of_key()
if wait ~= '' and writers then redis.pcall('ZREM', writers, wait) end
if wait ~= '' and letter == 'r' and writers then leave(readers, wait) end
if wait ~= '' and writers then mark(letter == 'r' and readers or writers, wait, true) end
if failure then return failure end
if letter == 'r' and live(own) == 0 and live('w' .. token) > 0 then
  letter, own = 'w', 'w' .. token
end
local was_in = live(own) > 0
if was_in and keep ~= '0' then
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
  redis.call('ZADD', key, now + keep, own)
  tidy()
  if not writers then return 5 end
  -- The first reader that enters admits all other readers.
  hint(writers, keep)
  hint(readers, keep)
  return told(1)
end
local had_reservation = wait ~= '' and live(reservation_of(letter, wait)) > 0
redis.call('ZREM', key, own)
if wait ~= '' then redis.pcall('ZREM', key, reservation_of(letter, wait)) end
tidy()
local by = last()
if not writers then
  return was_in and 5 or (is_writer(by) or by and letter == 'w') and 0 or -1
elseif not by then
  pass_on((ARGV[6] or '1') == '1' and letter == 'w' and (was_in or had_reservation), '', several)
elseif wait ~= '' and letter == 'w' and not is_writer(by) and not first_writer(several) then
  -- The wait that leaves may have kept readers out.
  drop_gone()
  reserve_for_readers(several)
end
if was_in then return told(1) end
return told((is_writer(by) or by and letter == 'w') and 0 or -1)
