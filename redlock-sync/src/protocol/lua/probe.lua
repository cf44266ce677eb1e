-- Behind permissions.lua: whether the server takes writes, and whether this user may do what locks need. Changes nothing: there is no such key.
-- KEYS[1] lock, KEYS[2] queue, KEYS[3] fence counter
-- replies 1
redis.call('PEXPIRE', KEYS[1], '1')
return 1
