-- Forgets a model unless an upload or a live computation needs it; its file may be removed until the mark ends.
-- ARGV: keep_ms, model, mark_ms
local key = model_key(ARGV[2])
if redis.call('EXISTS', key) == 0 then return 'unknown' end
if redis.call('EXISTS', pinned_key(ARGV[2])) == 1 or redis.call('SCARD', users_key(ARGV[2])) > 0 then
  return 'in_use'
end
redis.call('SET', removing_key(ARGV[2]), 1, 'PX', ARGV[3])
redis.call('DEL', key, packages_key(ARGV[2]))
redis.call('ZREM', 'tessera:models', ARGV[2])
return 'deleted'
