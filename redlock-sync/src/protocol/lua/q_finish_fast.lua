-- Runs before all other parts of q_finish.lua, as the fast path: the end `done` of a task that was not pushed again. In
-- every other case it does nothing, and the script that follows decides. Its twin is q_finish.lua.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] claims, KEYS[5] dead, KEYS[6] waits; or only the first four
-- ARGV[1] token, ARGV[2] the end, ARGV[3], ARGV[4], ARGV[5] not used, ARGV[6] id of the task
-- replies 1
if ARGV[2] == 'done' then
  local token, id = ARGV[1], ARGV[6]
  local again, holder = string.match(redis.call('HGET', KEYS[3], id) or '', '^%d+ %d+ (%d+) %d+ (%S+) ')
  if again == '0' and holder == token then
    -- A key of another type is found before a task is changed.
    redis.call('HGET', KEYS[2], '')
    redis.call('HDEL', KEYS[4], token)
    local removed = redis.pcall('ZREM', KEYS[1], id)
    if type(removed) == 'table' then
      redis.call('HSET', KEYS[4], token, id)
      return removed
    end
    redis.call('HDEL', KEYS[2], id)
    redis.call('HDEL', KEYS[3], id)
    return 1
  end
end
