-- Lists the slots that are lent, including reservations.
-- KEYS[1] semaphore
-- replies {1, `slot token`, remaining ms, and the same two for each further slot}, in no order, or {0}
-- include push, slots
local now = in_ms(redis.call('TIME'))
local lent, failure = read_lent(KEYS[1], now)
if failure then return failure end
local reply = {}
for slot, token in pairs(lent.tokens) do
  reply[#reply + 1] = slot .. ' ' .. token
  reply[#reply + 1] = lent.ends[slot] - now
end
if #reply == 0 then return {0} end
table.insert(reply, 1, 1)
return reply
