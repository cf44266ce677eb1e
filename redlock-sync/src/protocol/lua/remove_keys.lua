-- Ends keys at once. The command is one that users of each kind of lock may run.
-- KEYS[1] and more: the keys
-- replies how many of them there were
local removed = 0
for _, key in ipairs(KEYS) do removed = removed + redis.call('PEXPIRE', key, 0) end
return removed
