-- An API process is alive.
-- ARGV: keep_ms, identity, ttl_s
redis.call('ZADD', APIS_KEY, math.floor(now_ms() / 1000) + tonumber(ARGV[3]), ARGV[2])
