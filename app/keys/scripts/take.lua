-- Takes one request from a key's bucket, which fills up within a minute. Returns 0, or after how many ms there is one.
-- ARGV: key id, requests per minute
local bucket, most = 'tessera:rate:' .. ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local v = redis.call('HMGET', bucket, 'left', 'at')
local left = math.min(most, tonumber(v[1] or most) + math.max(0, now - tonumber(v[2] or now)) * most / 60000)
local wait_ms = left < 1 and math.ceil((1 - left) * 60000 / most) or 0
-- written also when it refuses: a time that was noted before the clock was set back would stop the filling until then
redis.call('HSET', bucket, 'left', string.format('%.6f', wait_ms > 0 and left or left - 1), 'at', now)
redis.call('PEXPIRE', bucket, 60000)
return wait_ms
