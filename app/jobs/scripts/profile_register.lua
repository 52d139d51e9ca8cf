-- Makes a user's profile known, once; its name means it from now on. Returns `new` or `known`, and since
-- when it is known; or `crowded`, and the models and profiles that the owner would have.
-- ARGV: keep_ms, owner, digest, name, most_items
local owner, digest, name = ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', profile_key(owner, digest)) == 0 then
  if too_much_memory() then return NO_MEMORY end
  local items = stored_items(owner) + 1
  if items > tonumber(ARGV[5]) then return { 'crowded', string.format('%.0f', items) } end
end
local created = redis.call('HSETNX', profile_key(owner, digest), 'created_ms', now_ms())
local created_ms = redis.call('HGET', profile_key(owner, digest), 'created_ms')
redis.call('HSET', profile_key(owner, digest), 'name', name)
redis.call('HSET', profile_names_key(owner), name, digest)
redis.call('ZADD', profiles_key(owner), 'NX', created_ms, digest)
return { created == 1 and 'new' or 'known', created_ms }
