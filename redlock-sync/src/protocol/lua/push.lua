-- Functions for the scripts that release or may grant a lock: they notify waits. They use no key and no argument by
-- themselves.
-- A queue is a sorted set of waits in order of arrival, each `channel/number`. Words after a space say what it asks for.
-- A member that begins with `*` is no wait (contention.lua, rw.lua).
-- A wait whose client cannot be notified is `-ms:random`: it polls. Each of its attempts sets a mark beside the queue
-- that lasts for that many ms, longer than its pauses. If there is no mark, its process is gone, and other waits go
-- first. A wait that only slept enters the queue again, at the end. Waits of older clients are `-random`, and always
-- count as alive. Scripts of older clients count both forms as alive.
-- A push is `wait fence span random key`, with the span in ms. A hint tells the wait to try after the span. It ends with
-- the space before the random part. A client that no longer has the wait needs the key, to give the lock back.

-- What a script could not publish: a hint for each wait. Its client publishes that (`told`).
local untold

-- Adds to the reply of a script what the client has to publish.
local function told(reply)
  return untold and {'untold', reply, untold} or reply
end

-- Notifies a wait. The words of the member after a space say what the wait asks for. They are not sent.
-- Returns how many connections received the push: 0 if the client of the wait is gone, -1 if this user may not publish.
-- A server can refuse PUBLISH in this script, as ElastiCache Serverless does for a channel that hashes to another slot
-- than the keys. Then the client of this script publishes a hint, and the function returns 1.
-- A wait that polls is not notified. The function returns 1 if it is alive, and 0 if it is gone. A cluster that moves
-- the slot can refuse to read the mark. Then the wait counts as alive.
local function push(wait, rest, queue)
  if string.sub(wait, 1, 1) == '-' then
    local is_marked = queue and string.find(wait, '^%-%d+:')
    return is_marked and redis.pcall('GET', queue .. ':' .. wait) == false and 0 or 1
  end
  local id = string.match(wait, '^[^ ]*')
  local receivers = redis.pcall('PUBLISH', string.match(wait, '^[^/]*'), id .. ' ' .. rest)
  if type(receivers) ~= 'table' then return receivers end
  -- Where the user lacks the permission, its client may not publish either.
  if string.find(receivers.err, '[Uu]ser ') then return -1 end
  -- An empty push only asks for the receivers.
  if rest ~= '' then
    untold = untold or {}
    untold[#untold + 1] = id .. (string.match(rest, '^0 %d+ $') and ' ' .. rest or ' 0 0 ')
  end
  return 1
end

-- Returns for how many ms the mark of a wait that polls lasts; nil for a wait that listens.
local function counts_for(wait)
  return tonumber(string.match(wait, '^%-(%d+):'))
end

-- Sets the mark of a wait that polls and is in the queue, or removes it once the wait is over.
local function mark(queue, wait, is_over)
  local ms = string.match(wait, '^%-(%d+):')
  local key = ms and queue .. ':' .. wait
  if ms and is_over then redis.pcall('PEXPIRE', key, 0) elseif ms then redis.pcall('SET', key, '1', 'PX', ms) end
end

-- Tells the first wait in the queue whose client listens when to try. All waits keep their places.
local function hint(queue, span)
  for _, wait in ipairs(redis.pcall('ZRANGE', queue, 0, 7)) do
    if string.sub(wait, 1, 1) ~= '*' and push(wait, '0 ' .. span .. ' ', queue) ~= 0 then return end
  end
end

