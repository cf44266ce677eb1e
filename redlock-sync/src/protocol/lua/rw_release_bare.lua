-- Stands before all else of rw_release.lua: what most releases need, while no wait is there. If it finds anything else, the script behind it decides.
-- KEYS and ARGV as there
-- replies 1 given up
if ARGV[4] == '' and ARGV[5] == '0' and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  local left = redis.pcall('ZREM', KEYS[1], ARGV[1] .. ARGV[2])
  if left ~= 0 then return left end
end
