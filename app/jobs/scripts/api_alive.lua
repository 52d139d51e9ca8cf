-- An API process is alive. Forgets identities whose processes are long gone.
-- ARGV: keep_ms, identity, ttl_s
local now_s = math.floor(now_ms() / 1000)
redis.call('ZREMRANGEBYSCORE', APIS_KEY, '-inf', now_s - 60)
redis.call('ZADD', APIS_KEY, now_s + tonumber(ARGV[3]), ARGV[2])
