-- Makes an uploaded model known to its owner, once.
-- ARGV: keep_ms, owner, model, name, size_bytes
local owner, model = ARGV[2], ARGV[3]
local key, now = model_key(owner, model), now_ms()
if redis.call('EXISTS', key) == 0 and too_much_memory() then return NO_MEMORY end
local created = redis.call('HSETNX', key, 'created_ms', now)
if created == 1 then
  redis.call('HSET', key, 'name', ARGV[4], 'size_bytes', ARGV[5])
  redis.call('ZADD', models_key(owner), now, model)
  count_bytes(owner, 'INCRBY', ARGV[5])
  if owner ~= '' then redis.call('SADD', owners_key(model), owner) end
end
redis.call('HDEL', arriving_key(owner), model)
if redis.call('DECR', uploading_key(model)) <= 0 then redis.call('DEL', uploading_key(model)) end
return created
