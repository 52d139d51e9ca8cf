-- Nothing of the former service is alive: every lease ends, every queued computation is due for delivery.
-- After a stop that was asked for, the attempts it cut off do not count; after a crash they do.
-- ARGV: keep_ms, max_attempts
local now, count = now_ms(), 0
local asked_for = redis.call('DEL', STOPPED_KEY) == 1
for _, content in ipairs(redis.call('ZRANGE', LEASES_KEY, 0, -1)) do
  if asked_for then redis.call('HINCRBY', computation_key(content), 'attempts', -1) end
  abandon(content, now, tonumber(ARGV[2]))
end
for _, content in ipairs(redis.call('ZRANGE', OUTBOX_KEY, 0, -1)) do
  redis.call('HSET', computation_key(content), 'sends', 0)
  redis.call('ZADD', OUTBOX_KEY, now, content)
  count = count + 1
end
return count
