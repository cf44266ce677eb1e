-- Finds the key because of which another call failed with WRONGTYPE, since the server does not name it.
-- KEYS[1] and more: helper keys
-- ARGV[1] and more, one for each key: the command by which it is read, if it has the right type
-- replies the number of the first key that has another type; 0 if there is none
for i, key in ipairs(KEYS) do
  local words = ARGV[i] == 'HGET' and {key, ''} or {key}
  local reply = redis.pcall(ARGV[i], unpack(words))
  if type(reply) == 'table' and string.find(reply.err or '', 'WRONGTYPE', 1, true) then return i end
end
return 0
