-- Runs before all other parts of q_push.lua, as the fast path: a push of one new task to a queue without a limit. In
-- every other case it does nothing, and the script that follows decides. If it has pushed a task and a wait may have to
-- be woken, the script that follows wakes the wait. Its twin is q_push.lua.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] dead, KEYS[5] waits, KEYS[6] claims
-- ARGV[1] not used, ARGV[2] most tasks in the queue, ARGV[3] id, ARGV[4] body, ARGV[5] when it is due; if there are
-- more arguments, it does nothing
-- replies {1, 1}: it is new
local is_pushed = false
if #ARGV == 5 and ARGV[2] == '' and string.sub(ARGV[5], 1, 1) == '+' then
  local due, id = KEYS[1], ARGV[3]
  -- A claimed or dead task has a state. A task that only waits needs none.
  if not redis.call('HGET', KEYS[3], id) then
    local time = redis.call('TIME')
    -- This call comes before any write, since it fails if the key is of another type.
    local are_waiting = redis.call('ZCARD', KEYS[5]) > 0
    if redis.call('ZADD', due, 'NX', string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[5]), id) == 1 then
      local stored = redis.pcall('HSET', KEYS[2], id, ARGV[4])
      -- The key is of another type, so nothing is queued.
      if type(stored) == 'table' then
        redis.call('ZREM', due, id)
        return stored
      end
      is_pushed = true
      if not are_waiting or ARGV[5] ~= '+0' and redis.call('ZRANGE', due, 0, 0)[1] ~= id then return {1, 1} end
    end
  end
end
