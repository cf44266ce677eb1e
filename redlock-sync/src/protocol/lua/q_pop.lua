-- Removes due tasks from a queue and returns them. They are removed even if the caller fails afterwards. Executed
-- twice, it takes other tasks. A full server (maxmemory) accepts the first write.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] dead, KEYS[5] claims
-- ARGV[1] how many at most, ARGV[2] most dead tasks; the last argument may be that of permissions.lua
-- A lost reply loses its tasks, so a reply has at most 64 KiB of bodies, or one larger body.
-- replies a list with {id, us since 1970 when it was due, state, body} for each
-- include permissions, q_task
local due, body, meta, dead, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now, most, taken, died, size = time[1] * 1000000 + time[2], tonumber(ARGV[1]), {}, 0, 0
-- A key of another type is found before anything is written.
redis.call('HGET', body, '')
redis.call('HGET', meta, '')
redis.call('HGET', claims, '')
redis.call('ZCARD', dead)
redis.call('PERSIST', due)
repeat
  local tasks = redis.call('ZRANGEBYSCORE', due, '-inf', n(now), 'WITHSCORES', 'LIMIT', 0, most - #taken)
  for i = 1, #tasks, 2 do
    local id, state = tasks[i], redis.call('HGET', meta, tasks[i]) or ''
    local attempts, version, again, _, holder = read(state)
    local replaced = body_behind(claims, holder, again)
    local text = replaced or redis.call('HGET', body, id)
    if text and #taken > 0 and size + #text > 65536 and not (replaced and again > now) then return taken end
    forget(claims, holder)
    if replaced and again > now then
      begin_anew(due, body, meta, id, version, again, replaced)
    elseif text then
      size = size + #text
      taken[#taken + 1] = {id, tasks[i + 1], replaced and '' or state, text}
      redis.call('ZREM', due, id)
      redis.call('HDEL', body, id)
      redis.call('HDEL', meta, id)
    else
      write(meta, id, attempts, version, 0, '0', '-', NO_BODY)
      bury(due, body, meta, dead, id, now, tonumber(ARGV[2]))
      died = died + 1
    end
  end
until #tasks == 0 or died > 1000
return taken
