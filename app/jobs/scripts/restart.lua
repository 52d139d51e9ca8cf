-- Nothing of the former service is alive: every lease ends, every queued computation is due for delivery.
-- ARGV: keep_ms, max_attempts
local now, count = now_ms(), 0
for _, content in ipairs(redis.call('ZRANGE', LEASES_KEY, 0, -1)) do
  abandon(content, now, tonumber(ARGV[2]))
end
for _, content in ipairs(redis.call('ZRANGE', OUTBOX_KEY, 0, -1)) do
  redis.call('HSET', computation_key(content), 'sends', 0)
  redis.call('ZADD', OUTBOX_KEY, now, content)
  count = count + 1
end
return count
