-- Nothing of the former service is alive, so every lease ends.
-- ARGV: keep_ms, max_attempts
local now = now_ms()
for _, leases in ipairs({ LEASES_KEY, FORMER_LEASES_KEY }) do
  for _, content in ipairs(redis.call('ZRANGE', leases, 0, -1)) do abandon(content, now, tonumber(ARGV[2])) end
end
redis.call('DEL', 'tessera:outbox') -- of versions before 0.12
