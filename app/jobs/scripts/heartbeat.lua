-- A worker is alive; one that was told to stop takes up no more work and is not counted.
-- ARGV: keep_ms, worker, served (JSON: version, store, queues, slots), ttl_s
local worker, now_s = ARGV[2], math.floor(now_ms() / 1000)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', WORKERS_KEY, '-inf', now_s - 60)) do
  redis.call('ZREM', WORKERS_KEY, gone)
  redis.call('HDEL', SERVED_KEY, gone)
end
if redis.call('EXISTS', stop_key(worker)) == 1 then return 'stopping' end
redis.call('ZADD', WORKERS_KEY, now_s + tonumber(ARGV[4]), worker)
redis.call('HSET', SERVED_KEY, worker, ARGV[3])
return 'alive'
