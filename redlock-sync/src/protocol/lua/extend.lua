-- Lengthens the lease of a token that still holds the lock. Never shortens it, never creates or deletes the key. If
-- threads of one process hand the lock to each other, it also counts the waits, and makes a record of the contention
-- (contention.lua).
-- KEYS[1] lock, KEYS[2] queue, only if the number of waits is wanted
-- ARGV[1] token, ARGV[2] lease in ms
-- replies 1, or {1, number of waits, and one more if a pause is due}: held for at least that long now; 0 another token
--         holds the lock, -1 there is no key
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
if not KEYS[2] then return 1 end

-- include contention
local queue, now = KEYS[2], now_in_ms()
local members = redis.pcall('ZCARD', queue)
if type(members) == 'table' then return {1, '0'} end
local _, record, due = front(queue)
if not record or string.sub(record, 1, 3) == '*2 ' then
  if due == 0 then begin(queue, record, now) end
  -- The next look comes when the next thread has held the lock, however long that takes.
  redis.call('PEXPIRE', queue, LIFETIME)
end
local waits = record and members - 1 or members
return {1, string.format('%.0f', waits + (due_pause(record, due, now) and 1 or 0))}
