-- Gives a permit up if its token still has it, and gives free slots to the first waits (slots.lua). Also takes a wait out of the queue: what was
-- reserved for that wait goes to the next. The first write is one that a full server (maxmemory) does not refuse.
-- KEYS[1] semaphore, KEYS[2] queue
-- ARGV[1] token (may be empty), ARGV[2] its slot (empty: not known), ARGV[3] number of permits, ARGV[4] 1 if there are several nodes, ARGV[5] ms for which
-- a slot is reserved, ARGV[6] ms to keep the permit (0 gives it up now), ARGV[7] own wait (may be empty)
-- replies 1 given up, 0 another token has the slot, -1 the token has none
local key, queue, token, keep, wait = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[6]), ARGV[7]
local own = tonumber(ARGV[2])
local now = in_ms(redis.call('TIME'))
if own and keep == 0 and wait == '' and redis.call('EXISTS', queue) == 0 then
  local ends = redis.pcall('ZSCORE', key, own .. ' ' .. token)
  if type(ends) == 'string' and tonumber(ends) >= now then
    redis.call('ZREM', key, own .. ' ' .. token)
    return 1
  end
end
if wait ~= '' then redis.pcall('ZREM', queue, wait) end
local lent, trouble = look(key, now)
if trouble then return trouble end
local is_given = false
local place_of_wait = wait ~= '' and RESERVED .. wait
for at, other in pairs(lent.tokens) do
  if other == token or other == place_of_wait then
    is_given = is_given or other == token
    if keep > 0 and other == token and (own or at) == at then
      purge(key, now)
      redis.call('ZADD', key, now + keep, at .. ' ' .. token)
      lengthen(key, keep)
      hint(queue, ARGV[6], '0 0')
    else
      redis.call('ZREM', key, at .. ' ' .. other)
      lent.tokens[at] = nil
    end
  end
end
local reply = is_given and 1 or lent.tokens[own or -1] and 0 or -1
local free = search(lent, tonumber(ARGV[3]), 0, tonumber(ARGV[3]))
if redis.call('EXISTS', queue) == 1 then
  purge(key, now)
  remove(queue, serve(key, queue, '', lent, free, now, tonumber(ARGV[5]), ARGV[4] == '1'))
end
return reply
