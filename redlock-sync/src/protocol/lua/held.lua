-- Looks whether locks are still held by these tokens. Reads only.
-- KEYS[1] and more: the locks, a key once for each token
-- ARGV[1] and more, one for each key: `=` and the token that the string is, or `*` and a member of the sorted set. Its
-- score is the end of its lease
-- replies {1}, followed by `i` for each ARGV[i] that KEYS[i] does not have. A sorted set that this user may not read
--         counts as having it
local strings, keys, gone = {}, {}, {1}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i, key in ipairs(KEYS) do
  local what = string.sub(ARGV[i], 2)
  if string.sub(ARGV[i], 1, 1) == '=' then
    strings[#strings + 1], keys[#keys + 1] = i, key
  else
    local ends = redis.pcall('ZSCORE', key, what)
    local is_refused = type(ends) == 'table' and not string.find(ends.err, 'WRONGTYPE', 1, true)
    if not is_refused and (type(ends) ~= 'string' or tonumber(ends) < now) then gone[#gone + 1] = i end
  end
end
if keys[1] then
  for n, held in ipairs(redis.call('MGET', unpack(keys))) do
    local i = strings[n]
    if held ~= string.sub(ARGV[i], 2) then gone[#gone + 1] = i end
  end
end
return gone
