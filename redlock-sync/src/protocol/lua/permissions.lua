-- Included by scripts that set something. On request, it checks before any write that this user may run the commands of
-- all scripts of one kind. Otherwise, a user could acquire a lock that it cannot release. A kind that is not used needs
-- no permission.
-- KEYS[1], KEYS[2] keys of the script, which can have more
-- ARGV: the last one may be `check` and the name of a kind. It is then removed.
-- replies an error with the commands that the server does not have, or that the user may not run; if there are none,
-- the script continues
local kind = string.match(ARGV[#ARGV] or '', '^check (%l+)$')
if kind then
  local needs = {
    mutex = 'SET GET MGET PEXPIRE PTTL EXISTS DEL TIME ZADD ZREM ZCARD ZRANGE ZREVRANGE EVALSHA EVAL',
    semaphore = 'SET GET MGET PEXPIRE PTTL EXISTS TIME ZADD ZREM ZRANGE ZREVRANGE ZREMRANGEBYSCORE EVALSHA EVAL',
    rw = 'SET GET MGET PEXPIRE PTTL EXISTS DEL TIME ZADD ZREM ZCARD ZSCORE ZRANGE ZREVRANGE ZREMRANGEBYRANK EVALSHA EVAL',
    queue = 'SET GET PEXPIRE PERSIST TIME ZADD ZREM ZCARD ZSCORE ZRANGE ZRANGEBYSCORE ZPOPMIN ZREMRANGEBYSCORE HGET HMGET HSET HDEL EVALSHA EVAL',
  }
  -- The arguments that make a call of each command complete, since the server reads the keys in it. No such call
  -- changes anything: it only reads, or its arguments are refused after the check of permissions.
  local rest = {
    SET = {'', 'NX', 'XX'}, PEXPIRE = {'never'}, ZADD = {'never', ''}, ZREM = {''}, ZSCORE = {''}, ZPOPMIN = {'never'},
    ZRANGE = {'never', 'never'}, ZRANGEBYSCORE = {'never', 'never'}, ZREVRANGE = {'never', 'never'},
    ZREMRANGEBYRANK = {'never', 'never'}, ZREMRANGEBYSCORE = {'never', 'never'},
    HGET = {''}, HMGET = {''}, HSET = {'', '', ''}, HDEL = {''},
  }
  local missing, unknown, is_full = {}, {}, false
  local function need(command, ...)
    local is_allowed
    if redis.acl_check_cmd then
      -- This runs nothing, and leaves no entry in the ACL LOG. A command that the server does not know raises an error.
      local is_known, answer = pcall(redis.acl_check_cmd, command, ...)
      is_allowed = not is_known or answer
      if not is_known then unknown[#unknown + 1] = command end
    else
      -- Redis 6 reports a missing permission only when the command runs.
      local reply = redis.pcall(command, ...)
      local said = type(reply) == 'table' and reply.err or ''
      is_allowed = not string.find(said, "can't run this command", 1, true)
      is_full = string.find(said, 'OOM', 1, true)
      if string.find(said, 'Unknown Redis command', 1, true) then unknown[#unknown + 1] = command end
    end
    if not is_allowed then missing[#missing + 1] = command end
  end
  for command in string.gmatch(needs[kind], '%u+') do
    if command == 'TIME' then
      need(command)
    elseif command == 'EVALSHA' or command == 'EVAL' then
      if redis.acl_check_cmd then need(command, '', #KEYS, unpack(KEYS)) end
    elseif (command == 'DEL' or command == 'PERSIST') and not redis.acl_check_cmd then
      need(command, KEYS[2] .. ':none')
    else
      need(command, KEYS[1], unpack(rest[command] or {}))
    end
    -- A full server (maxmemory) refuses SET, the first command of each kind. After a write that it accepts, even one
    -- that changes nothing, it would refuse nothing more. Then the script that follows could set the lock.
    if is_full then break end
  end
  ARGV[#ARGV] = nil
  if #unknown > 0 then return redis.error_reply('NOCOMMAND this server has no ' .. table.concat(unknown, ', ')) end
  if #missing > 0 then return redis.error_reply('NOPERM this user may not run ' .. table.concat(missing, ', ')) end
end
