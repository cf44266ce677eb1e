-- Checks that the server accepts writes, and that this user may run the commands that locks
-- need. Changes nothing, since the key does not exist.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter
-- replies 1
-- include permissions
redis.call('PEXPIRE', KEYS[1], '1')
return 1
