-- Makes an uploaded model known, once.
-- ARGV: keep_ms, model, name, size_bytes
local key, now = model_key(ARGV[2]), now_ms()
local created = redis.call('HSETNX', key, 'created_ms', now)
if created == 1 then
  redis.call('HSET', key, 'name', ARGV[3], 'size_bytes', ARGV[4])
  redis.call('ZADD', 'tessera:models', now, ARGV[2])
end
local pinned = pinned_key(ARGV[2])
if redis.call('DECR', pinned) <= 0 then redis.call('DEL', pinned) end
return created
