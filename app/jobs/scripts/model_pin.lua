-- An upload is about to move its file into place: a deletion of the same model must not come between. Its bytes count for
-- its owner from now on. Returns what was done, and of `full` the bytes that the owner would have.
-- ARGV: keep_ms, owner, model, size_bytes, most_bytes, pin_ms
local owner, model = ARGV[2], ARGV[3]
if redis.call('EXISTS', removing_key(model)) == 1 then return { 'deleting', '0' } end
if redis.call('EXISTS', model_key(owner, model)) == 0 then
  redis.call('HDEL', arriving_key(owner), model)
  local bytes = stored_bytes(owner) + tonumber(ARGV[4])
  if bytes > tonumber(ARGV[5]) then return { 'full', string.format('%.0f', bytes) } end
  redis.call('HSET', arriving_key(owner), model, ARGV[4])
  redis.call('PEXPIRE', arriving_key(owner), ARGV[6])
end
pin(uploading_key(model), ARGV[6])
return { 'pinned', '0' }
