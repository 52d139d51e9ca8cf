-- Begins an optimisation unless another works on it: what was 'asked' becomes the worker's token.
-- KEYS: lock; ARGV: token, ms
local present = redis.call('GET', KEYS[1])
if present and present ~= 'asked' then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
