-- Nothing of the former service is alive, so every lease ends.
-- ARGV: keep_ms, max_attempts
local now = now_ms()
for _, content in ipairs(redis.call('ZRANGE', LEASES_KEY, 0, -1)) do
  abandon(content, now, tonumber(ARGV[2]))
end
redis.call('DEL', 'tessera:outbox') -- of versions before 0.12
