-- Runs before the scripts that acquire. If it is asked to, it checks that this user may run the commands of all scripts, before anything is set:
-- otherwise a lock could be taken that cannot be released.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter
-- ARGV: the last one is `check` if it is asked to, and is removed
-- replies an error with the commands that the user may not run; if there are none, the script behind this continues
if ARGV[#ARGV] == 'check' then
  local missing = {}
  local function need(command, ...)
    local is_allowed
    if redis.acl_check_cmd then
      -- This runs nothing, and leaves no entry in the ACL LOG. The call has to be complete, since the server reads the keys in it. A command that
      -- the server does not know raises an error.
      local is_known, answer = pcall(redis.acl_check_cmd, command, ...)
      is_allowed = is_known and answer
    else
      -- Redis 6 only tells when the command is run.
      local reply = redis.pcall(command, ...)
      is_allowed = type(reply) ~= 'table' or not reply.err or not string.find(reply.err, "can't run this command", 1, true)
    end
    if not is_allowed then missing[#missing + 1] = command end
  end
  -- None of these changes anything if it is run: it only reads, or its arguments are refused after the permissions have been checked.
  need('SET', KEYS[1], '', 'NX', 'XX')
  need('GET', KEYS[3])
  need('MGET', KEYS[1])
  need('PEXPIRE', KEYS[3], 'never')
  need('PTTL', KEYS[1])
  need('EXISTS', KEYS[2])
  need('TIME')
  need('ZADD', KEYS[2], 'never', '')
  need('ZREM', KEYS[2], '')
  need('ZCARD', KEYS[2])
  need('ZRANGE', KEYS[2], 'never', 'never')
  need('ZREVRANGE', KEYS[2], 'never', 'never')
  need('ZPOPMIN', KEYS[2], 'never')
  need('ZSCORE', KEYS[2], '')
  need('ZREMRANGEBYRANK', KEYS[2], 'never', 'never')
  need('ZREMRANGEBYSCORE', KEYS[2], 'never', 'never')
  need('ZRANGEBYSCORE', KEYS[2], 'never', 'never')
  need('HGET', KEYS[2], '')
  need('HSET', KEYS[2], '', '', '')
  need('HDEL', KEYS[2], '')
  if redis.acl_check_cmd then
    need('PERSIST', KEYS[1])
    need('DEL', KEYS[1], KEYS[2])
    need('EVALSHA', '', 3, KEYS[1], KEYS[2], KEYS[3])
  else
    need('DEL', KEYS[2] .. ':none')
    need('PERSIST', KEYS[2] .. ':none')
  end
  ARGV[#ARGV] = nil
  if #missing > 0 then return redis.error_reply('NOPERM this user may not run ' .. table.concat(missing, ', ')) end
end
