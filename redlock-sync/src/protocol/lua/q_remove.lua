-- Removes a task, claimed or not, dead or not. On request, it removes the task only if the task has not changed since
-- the caller saw it.
-- KEYS[1] due, KEYS[2] body, KEYS[3] meta, KEYS[4] dead, KEYS[5] claims
-- ARGV[1] id, ARGV[2] us since 1970 as it was seen (empty: whatever it is now), ARGV[3] version as it was seen; the
-- last argument may be that of permissions.lua
-- replies 1 removed, 0 it has changed, -1 there is no such task
-- include permissions, q_task
local id = ARGV[1]
local at, died = redis.call('ZSCORE', KEYS[1], id), redis.call('ZSCORE', KEYS[4], id)
local state = redis.call('HGET', KEYS[3], id)
if not at and not died and not state then return -1 end
local _, version, _, _, holder = read(state)
if ARGV[2] ~= '' and (tonumber(at or died or '') ~= tonumber(ARGV[2]) or version ~= tonumber(ARGV[3])) then return 0 end
-- A key of another type is found before anything is written.
if holder ~= '-' then redis.call('HGET', KEYS[5], '') end
redis.call('HDEL', KEYS[2], id)
redis.call('HDEL', KEYS[3], id)
redis.call('ZREM', KEYS[1], id)
redis.call('ZREM', KEYS[4], id)
forget(KEYS[5], holder)
return 1
