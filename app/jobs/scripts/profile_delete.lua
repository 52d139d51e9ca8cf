-- Forgets a user's profile; its name then means the newest other profile of that name, if there is one.
-- ARGV: keep_ms, owner, digest
local owner, digest = ARGV[2], ARGV[3]
local name = redis.call('HGET', profile_key(owner, digest), 'name')
if not name then return 'unknown' end
redis.call('DEL', profile_key(owner, digest))
redis.call('ZREM', profiles_key(owner), digest)
if redis.call('HGET', profile_names_key(owner), name) == digest then
  redis.call('HDEL', profile_names_key(owner), name)
  for _, other in ipairs(redis.call('ZREVRANGE', profiles_key(owner), 0, -1)) do
    if redis.call('HGET', profile_key(owner, other), 'name') == name then
      redis.call('HSET', profile_names_key(owner), name, other)
      break
    end
  end
end
return 'deleted'
