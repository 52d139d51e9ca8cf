-- A worker was told to stop, and what it does not finish counts as no attempt; or it has ended.
-- ARGV: keep_ms, worker, remembered_s
redis.call('SET', stop_key(ARGV[2]), 1, 'EX', ARGV[3])
redis.call('ZREM', WORKERS_KEY, ARGV[2])
redis.call('HDEL', SERVED_KEY, ARGV[2])
