-- Stands before the scripts that acquire. On request it makes sure that this user may run the commands of all scripts, before anything is set:
-- else a lock could be taken that cannot be released.
-- KEYS[1] lock, KEYS[2] fence counter, KEYS[3] wake list, KEYS[4] waiting
-- ARGV: the last one is `check` for a request, and is taken away
-- replies an error with all commands that are missing; if none is, the script behind this goes on
if ARGV[#ARGV] == 'check' then
  local missing = {}
  local function need(command, ...)
    local is_allowed
    if redis.acl_check_cmd then
      -- Runs nothing and writes nothing into the server's log. The call has to be complete: a server looks for the keys where they should be.
      is_allowed = redis.acl_check_cmd(command, ...)
    else
      -- Redis 6 has to be told to run it.
      local reply = redis.pcall(command, ...)
      is_allowed = type(reply) ~= 'table' or not reply.err or not string.find(reply.err, "can't run this command", 1, true)
    end
    if not is_allowed then missing[#missing + 1] = command end
  end
  -- None of these changes anything where it is run: it only reads, or it fails behind the check of permissions.
  need('SET', KEYS[1], '', 'NX', 'XX')
  need('GET', KEYS[2])
  need('PEXPIRE', KEYS[2], 'never')
  need('PTTL', KEYS[1])
  need('EXISTS', KEYS[4])
  need('TIME')
  need('LINDEX', KEYS[3], 0)
  need('ZADD', KEYS[4], 'never', '')
  need('ZREM', KEYS[4], '')
  need('ZCARD', KEYS[4])
  need('ZCOUNT', KEYS[4], 'never', 'never')
  need('ZSCORE', KEYS[4], '')
  need('ZREMRANGEBYSCORE', KEYS[4], 'never', 'never')
  if redis.acl_check_cmd then
    need('DEL', KEYS[1], KEYS[3])
    need('RPUSH', KEYS[3], '')
    need('EVALSHA', '', 4, KEYS[1], KEYS[2], KEYS[3], KEYS[4])
  else
    need('DEL', KEYS[4] .. ':none')
  end
  ARGV[#ARGV] = nil
  if #missing > 0 then return redis.error_reply('NOPERM this user may not run ' .. table.concat(missing, ', ')) end
end
