-- Functions for the scripts of a queue: they read and write the state of a task. They use no key and no argument by
-- themselves.
-- The state is `attempts version again fence token why`. Times are in us. `again` is the time at which the task must
-- run once more after the current claim (0: it need not). The token is that of its claim (`-`: none). `why` is the last
-- error. A task that was never claimed needs no state. A state that cannot be parsed counts as none, so that the task
-- still runs. A task without a body dies.

local NO_BODY = 'its body is missing'

local function n(x) return string.format('%.0f', x) end

local function read(state)
  local attempts, version, again, fence, token, why = string.match(state or '', '^(%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not attempts then return 0, 1, 0, '0', '-', '' end
  return tonumber(attempts), tonumber(version), tonumber(again), fence, token, why
end

local function write(meta, id, attempts, version, again, fence, token, why)
  local numbers = n(attempts) .. ' ' .. n(version) .. ' ' .. n(again) .. ' ' .. fence
  redis.call('HSET', meta, id, numbers .. ' ' .. token .. ' ' .. why)
end

-- A push that replaces a claimed task stores its body among the claims, under the token and ` next`, until the end of
-- the claim.
local function body_behind(claims, token, again)
  return again > 0 and token ~= '-' and redis.call('HGET', claims, token .. ' next')
end

-- Removes the claim of this token.
local function forget(claims, token)
  if token ~= '-' then redis.call('HDEL', claims, token, token .. ' next') end
end

-- Queues a task as new that was pushed while it was claimed. If that push has replaced the task, the task gets the new
-- body.
local function begin_anew(due, body, meta, id, version, at, text)
  if text then redis.call('HSET', body, id, text) end
  write(meta, id, 0, version, 0, '0', '-', '')
  redis.call('ZADD', due, n(at), id)
end

-- Moves a task to the dead tasks. If there are more than `most`, the oldest are removed.
local function bury(due, body, meta, dead, id, now, most)
  redis.call('ZREM', due, id)
  redis.call('ZADD', dead, n(now), id)
  for _ = 1, 10 do
    if redis.call('ZCARD', dead) <= most then return end
    local oldest = redis.call('ZPOPMIN', dead)[1]
    redis.call('HDEL', body, oldest)
    redis.call('HDEL', meta, oldest)
  end
end
