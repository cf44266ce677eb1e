-- Gives the lock up if the token still holds it: grants it to the waiter who has been blocked longest, or frees it. With a minimum
-- hold left it lets the key run out after that instead, and tells a waiter so. The first write is one that a full server (maxmemory)
-- does not refuse.
-- KEYS[1] lock, KEYS[2] fence counter, KEYS[3] wake list, KEYS[4] waiting
-- ARGV[1] token, ARGV[2] ms to keep the key (0 gives it up now), ARGV[3] id of the holder's waiter (may be empty),
-- ARGV[4] next token (empty: grant nothing), ARGV[5] grant in ms,
-- ARGV[6] ms for which the fence counter outlasts the clock's reaching it (0: no fence is wanted),
-- ARGV[7] server time in ms at which the chain of grants began (0: here), ARGV[8] longest chain in ms,
-- ARGV[9] ms for which a lock that was freed after so long a chain is left to others,
-- ARGV[10] `again` if this was sent before: then nothing is granted, or the same token could be granted twice
-- replies 1 given up, {1, '1'} freed after a chain as long as that, 0 another token holds the lock, -1 there is no key
-- An envelope is `fence chain span token`, with the grant's span in ms; one without a token is a hint that the key is free, to be tried
-- after the span.
-- The mark goes whoever holds the lock: a waiter who won elsewhere was marked on a node that said no.
if ARGV[3] ~= '' then redis.pcall('ZREM', KEYS[4], ARGV[3]) end
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then
  -- Who leaves may have read the hint that was for all who wait.
  if ARGV[3] ~= '' and redis.call('EXISTS', KEYS[4]) == 1 and redis.call('EXISTS', KEYS[3]) == 0 then
    redis.call('RPUSH', KEYS[3], '0 0 0 ')
    redis.call('PEXPIRE', KEYS[3], 1000)
  end
  return -1
end
if held ~= ARGV[1] then
  -- Who leaves as the last one who waited frees what was granted to him and is still unread.
  if ARGV[3] ~= '' and redis.call('EXISTS', KEYS[4]) == 0 then
    local envelope = redis.pcall('LINDEX', KEYS[3], 0)
    if type(envelope) == 'string' and string.match(envelope, '^%d+ %d+ %d+ (.+)$') == held then
      redis.call('DEL', KEYS[1], KEYS[3])
    end
  end
  return 0
end
if ARGV[2] ~= '0' then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if redis.call('EXISTS', KEYS[4]) == 1 then
    -- Else he would sleep on for as long as the lease was when he looked.
    redis.call('DEL', KEYS[3])
    redis.call('RPUSH', KEYS[3], '0 0 ' .. ARGV[2] .. ' ')
    redis.call('PEXPIRE', KEYS[3], ARGV[2] + 1000)
  end
  return 1
end
if redis.call('EXISTS', KEYS[4]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[3])
  return 1
end
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('DEL', KEYS[3])
redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', ms))
local waiting = redis.pcall('ZCARD', KEYS[4])
if type(waiting) == 'table' or waiting == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
local chain = tonumber(ARGV[7])
if chain == 0 then chain = ms end
local is_long = ms - chain > tonumber(ARGV[8])
if ARGV[4] == '' or ARGV[10] == 'again' or is_long then
  -- Freed for real. After a long chain programs that poll the key get their chance before the waiter whom the hint tells to try.
  redis.call('DEL', KEYS[1])
  redis.call('RPUSH', KEYS[3], '0 0 ' .. (is_long and ARGV[9] or '0') .. ' ')
  redis.call('PEXPIRE', KEYS[3], 1000)
  if is_long then return {1, '1'} end
  return 1
end
local fence, life = '0', 0
if ARGV[6] ~= '0' then
  local stored = redis.pcall('GET', KEYS[2])
  -- At its end (acquire.lua) the next holder is told when it asks.
  if type(stored) ~= 'table' and (tonumber(stored or 0) or 0) < 9007199254740991 then
    local clock = now[1] * 1000000 + now[2]
    fence = math.max(clock, (tonumber(stored or 0) or 0) + 1)
    life = ARGV[6] + math.floor((fence - clock) / 1000)
    fence = string.format('%.0f', fence)
  end
end
-- The list ends before the key does: an envelope never outlives its grant. The key comes last, when nothing can fail any more.
redis.call('RPUSH', KEYS[3], fence .. ' ' .. string.format('%.0f', chain) .. ' ' .. ARGV[5] .. ' ' .. ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
if fence ~= '0' then redis.call('SET', KEYS[2], fence, 'PX', life) end
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
return 1
