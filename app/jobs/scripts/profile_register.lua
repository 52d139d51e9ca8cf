-- Makes a user's profile known, once; its name means it from now on. Returns whether it is new, and since when it is known.
-- ARGV: keep_ms, digest, name
local digest, name = ARGV[2], ARGV[3]
local created = redis.call('HSETNX', profile_key(digest), 'created_ms', now_ms())
local created_ms = redis.call('HGET', profile_key(digest), 'created_ms')
redis.call('HSET', profile_key(digest), 'name', name)
redis.call('HSET', PROFILE_NAMES_KEY, name, digest)
redis.call('ZADD', PROFILES_KEY, 'NX', created_ms, digest)
return { created, created_ms }
