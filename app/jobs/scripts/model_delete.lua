-- Forgets an owner's model unless a job of the owner needs it. The last owner's takes the file along, which may be removed
-- until the mark ends, unless an upload or a computation needs it.
-- ARGV: keep_ms, owner, model, mark_ms
local owner, model = ARGV[2], ARGV[3]
if redis.call('EXISTS', model_key(owner, model)) == 0 then return 'unknown' end
local owners = redis.call('SCARD', owners_key(model)) + redis.call('EXISTS', model_key('', model))
if owners > 1 then
  for _, content in ipairs(redis.call('SMEMBERS', users_key(model))) do
    for _, job in ipairs(waiting(content)) do
      if (redis.call('HGET', job_key(job), 'owner') or '') == owner then return 'in_use' end
    end
  end
elseif redis.call('EXISTS', uploading_key(model)) == 1 or redis.call('SCARD', users_key(model)) > 0 then
  return 'in_use'
end
count_bytes(owner, 'DECRBY', redis.call('HGET', model_key(owner, model), 'size_bytes') or 0)
redis.call('DEL', model_key(owner, model), packages_key(owner, model))
redis.call('ZREM', models_key(owner), model)
redis.call('SREM', owners_key(model), owner)
if owners > 1 then return 'left' end
redis.call('SET', removing_key(model), 1, 'PX', ARGV[4])
return 'deleted'
