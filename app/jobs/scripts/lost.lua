-- The worker under this fence is known to be dead: its lease ends now instead of when it runs out.
-- ARGV: keep_ms, content, fence, max_attempts
local content = ARGV[2]
if redis.call('HGET', computation_key(content), 'fence') ~= ARGV[3] then return 'none' end
return abandon(content, now_ms(), tonumber(ARGV[4]))
