-- Reports facts about the server. Needs no key.
-- ARGV[1] a channel
-- replies {1, text}: lines `name:value` in the form of INFO. Before the lines of INFO: `now_ms`; `may_listen:0` if the
--         user may not use such channels; `may_wait:0` if it may not wait for replicas. If the user may not run INFO,
--         `refused` with the server's words stands in its place.
local time = redis.call('TIME')
local facts = 'now_ms:' .. time[1] .. string.format('%03d', math.floor(time[2] / 1000)) .. '\n'
if redis.acl_check_cmd then
  local function may(...)
    local is_known, answer = pcall(redis.acl_check_cmd, ...)
    return is_known and answer
  end
  if not (may('PUBLISH', ARGV[1], '') and may('SUBSCRIBE', ARGV[1])) then facts = facts .. 'may_listen:0\n' end
  if not may('WAIT', '1', '1') then facts = facts .. 'may_wait:0\n' end
end
local info = redis.pcall('INFO')
if type(info) == 'table' then info = 'refused:' .. (info.err or '') end
return {1, facts .. info}
