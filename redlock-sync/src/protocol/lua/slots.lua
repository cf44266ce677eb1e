-- Functions for the scripts of semaphores: they find the slots that are lent, and the wait whose turn it is. Included
-- after push.lua. They use no key and no argument by themselves.
-- A semaphore is a sorted set with a member `slot token` for each permit that is lent. Its score is the end of that
-- lease, in ms of the server's clock. A permit lives through its last ms, as a key does. Members that have ended do not
-- count, and a later write removes them.
-- With one node, the waits get their turn in order of arrival. A free slot is reserved for the next attempt of the
-- first wait whose client listens, by a member with the token below. A reservation is not a permit. Only an attempt of
-- that wait, with its own token, turns it into a permit. So a script that is executed twice may reserve twice without
-- harm. With several nodes, nothing is reserved: as many waits are notified as there are free slots.
-- A wait is `channel/number permits many`. It wants `many` slots of a semaphore of that many permits, which may differ
-- from the number that the caller's handle has. With one node, a wait for more than one permit gets all of its slots at
-- once. The waits after it get none before it has them. With several nodes, each wait wants one slot.

local RESERVED = string.rep('0', 32) .. ':granted:'

local function in_ms(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Reads the slots that are lent. Returns tokens and ends by slot, the holder that ends first, and whether there are
-- members that have ended. Returns nil and an error if the key is not a semaphore.
local function read_lent(key, now)
  local all = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')
  if all.err then return nil, all end
  local tokens, all_ends = {}, {}
  local lent = {tokens = tokens, ends = all_ends}
  for i = 1, #all, 2 do
    local space = string.find(all[i], ' ', 1, true)
    local slot = space and tonumber(string.sub(all[i], 1, space - 1))
    if not slot then return nil, redis.error_reply('WRONGTYPE the sorted set is no semaphore') end
    local ends = tonumber(all[i + 1])
    if ends < now then
      lent.is_stale = true
    else
      local token = string.sub(all[i], space + 1)
      tokens[slot], all_ends[slot] = token, ends
      if not lent.first then lent.first, lent.holder = ends, token end
    end
  end
  return lent
end

-- Parses slots that an argument names with spaces between them, as a list and as a set.
local function slots_of(text)
  local list, set = {}, {}
  for slot in string.gmatch(text, '%d+') do
    list[#list + 1] = tonumber(slot)
    set[tonumber(slot)] = true
  end
  return list, set
end

-- Returns a function that finds `many` free slots of `permits`, in a circle that begins at `first`. That function
-- returns nil if there are fewer. Slots count as free until a token is set for them in `lent`.
local function search(lent, permits, first)
  local at = 0
  return function(many)
    while at < permits and lent.tokens[(first + at) % permits] do at = at + 1 end
    local slots, next = {}, at
    while #slots < many and next < permits do
      local slot = (first + next) % permits
      if not lent.tokens[slot] then slots[#slots + 1] = slot end
      next = next + 1
    end
    if #slots == many then return slots end
  end
end

-- Lets the key live at least as long as a new member.
local function lengthen(key, ms)
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ms))
end

-- Gives the slots that `free` finds to the first waits in the queue, up to the wait `own`, and reserves them for `span`
-- ms. With several nodes `span` is 0. Returns the waits to remove from the queue. They are removed later, since a full
-- server (maxmemory) has to refuse the first write of an attempt. The other slots may be kept for a wait that needs more
-- than there are. Then the function also returns for how many ms at most, unless that wait shows that it is alive.
local function serve(key, queue, own, lent, free, now, span)
  local gone, at, is_reserved, several = {}, 0, false, span == 0
  while free(1) do
    local wait = redis.pcall('ZRANGE', queue, at, at)[1]
    if not wait or wait == own then return gone end
    at = at + 1
    local permits, many = string.match(wait, ' (%d+) (%d+)$')
    local slots = (permits and search(lent, tonumber(permits), 0) or free)(tonumber(many or 1))
    -- A wait that needs more is notified to try when the next permit ends. This also shows whether its client is there.
    local rest = slots and 0 or math.max((lent.first or now) - now, 1)
    local polls = several and string.sub(wait, 1, 1) == '-'
    local receivers = polls and 0 or push(wait, '0 ' .. string.format('%.0f', rest) .. ' ', queue)
    -- This user may not publish, so any attempt may take the free slots.
    if receivers < 0 then return gone end
    if receivers > 0 and not slots then return gone, counts_for(wait) or math.huge end
    if receivers > 0 then
      for _, slot in ipairs(slots) do
        lent.tokens[slot] = RESERVED .. wait
        if not several then redis.call('ZADD', key, now + span, slot .. ' ' .. RESERVED .. wait) end
      end
      if not several then
        lengthen(key, span)
        is_reserved = true
        if now + span < (lent.first or math.huge) then lent.first, lent.holder = now + span, RESERVED .. wait end
      end
    end
    if receivers == 0 or not several then gone[#gone + 1] = wait end
  end
  -- The process for which a slot was reserved may have stopped. So the next wait tries when the reservation ends.
  for _, wait in ipairs(is_reserved and redis.pcall('ZRANGE', queue, at, at + 7) or {}) do
    if wait == own or push(wait, '0 ' .. string.format('%.0f', span + 1) .. ' ', queue) ~= 0 then break end
  end
  return gone
end

-- Removes members from a sorted set.
local function remove(key, members)
  for _, member in ipairs(members) do redis.pcall('ZREM', key, member) end
end

local function purge(key, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. string.format('%.0f', now))
end

