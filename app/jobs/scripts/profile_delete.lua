-- Forgets a user's profile; its name then means the newest other profile of that name, if there is one.
-- ARGV: keep_ms, digest
local digest = ARGV[2]
local name = redis.call('HGET', profile_key(digest), 'name')
if not name then return 'unknown' end
redis.call('DEL', profile_key(digest))
redis.call('ZREM', PROFILES_KEY, digest)
if redis.call('HGET', PROFILE_NAMES_KEY, name) == digest then
  redis.call('HDEL', PROFILE_NAMES_KEY, name)
  for _, other in ipairs(redis.call('ZREVRANGE', PROFILES_KEY, 0, -1)) do
    if redis.call('HGET', profile_key(other), 'name') == name then
      redis.call('HSET', PROFILE_NAMES_KEY, name, other)
      break
    end
  end
end
return 'deleted'
