-- Passes a lock from the token of a former holder to another token, if the former token still holds it. The lock is
-- never free in between, and lasts for the lease of the new holder. A full server (maxmemory) does not refuse the first
-- write. Safe to execute twice.
-- KEYS[1] lock, KEYS[2] queue (for the check of permissions.lua), KEYS[3] fence counter
-- ARGV[1] token, ARGV[2] lease in ms, ARGV[3] 1 if a fence is wanted, ARGV[4] ms for which the fence counter is kept
-- after the clock has reached it, ARGV[5] token of the former holder; the last argument may be that of permissions.lua
-- replies 1 or {1, fence} when the token holds the lock now, {0, ms, token, 0} another token holds it for that long, -1
--         there is no key
-- include permissions, fence_counter
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held == false then return -1 end
if held ~= ARGV[1] and held ~= ARGV[5] then return {0, redis.call('PTTL', KEYS[1]), held, 0} end
local failure = ARGV[3] == '1' and fence_error(KEYS[3])
if failure then return failure end
-- A second execution never shortens the lease.
local life = tonumber(ARGV[2])
if held == ARGV[1] then life = math.max(redis.call('PTTL', KEYS[1]), life) end
redis.call('PEXPIRE', KEYS[1], life)
redis.call('SET', KEYS[1], ARGV[1], 'PX', life)
return ARGV[3] == '1' and {1, raise(KEYS[3], 0, ARGV[4])} or 1
