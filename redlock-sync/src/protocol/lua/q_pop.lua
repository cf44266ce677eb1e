-- Removes due tasks from a queue and returns them. They are removed even if the caller fails afterwards. Executed
-- twice, it takes other tasks. A full server (maxmemory) accepts the first write. A paused queue gives none.
-- KEYS[1] due, KEYS[2] tasks, KEYS[3] claims, KEYS[4] dead
-- ARGV[1] how many at most, ARGV[2] most dead tasks, ARGV[3] ms for which a dead task is kept (empty: no limit); the
-- last argument may be that of permissions.lua
-- A lost reply loses its tasks, so a reply has at most 64 KiB of bodies, or one larger body.
-- replies a list with {place, us since 1970 when it was due, state, digits and body} for each
-- include permissions, q_task
local due, tasks, claims, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now, most, taken, died, size = time[1] * 1000000 + time[2], tonumber(ARGV[1]), {}, 0, 0
-- A key of another type is found before anything is written.
redis.call('HGET', claims, '')
redis.call('ZCARD', dead)
redis.call('ZCARD', due)
if redis.call('HGET', tasks, 'paused') then return taken end
redis.call('PERSIST', due)
repeat
  local places = redis.call('ZRANGEBYSCORE', due, '-inf', n(now), 'WITHSCORES', 'LIMIT', 0, most - #taken)
  for i = 1, #places, 2 do
    local place, id = places[i], id_of(places[i])
    local state = state_of(tasks, place) or ''
    local attempts, version, again, _, holder = read(state)
    local replaced = next_text(tasks, place, again, holder)
    local text, is_stale = text_of(tasks, place)
    text = replaced or text
    local is_taken = text and not is_stale and not (replaced and again > now)
    if is_taken and #taken > 0 and size + #text > 65536 then return taken end
    forget(tasks, claims, id, holder)
    if is_stale then
      redis.call('ZREM', due, place)
    elseif is_taken then
      size = size + #text
      taken[#taken + 1] = {place, places[i + 1], replaced and '' or state, text}
      drop(due, tasks, place)
    elseif replaced then
      begin_anew(due, tasks, place, version, again, replaced)
    else
      write(tasks, place, attempts, version, 0, '0', '-', NO_BODY)
      bury(due, tasks, dead, place, now, ARGV[2], ARGV[3])
      died = died + 1
    end
  end
until #places == 0 or died > 1000
return taken
