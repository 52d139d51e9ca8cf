-- An upload is about to move its file into place: a deletion of the same model must not come between. Its bytes count for
-- its owner from now on. Returns what was done, and of `full` the bytes, of `crowded` the models and profiles that
-- the owner would have.
-- ARGV: keep_ms, owner, model, size_bytes, most_bytes, most_items, pin_ms
local owner, model = ARGV[2], ARGV[3]
if redis.call('EXISTS', removing_key(model)) == 1 then return { 'deleting', '0' } end
if redis.call('EXISTS', model_key(owner, model)) == 0 then
  redis.call('HDEL', arriving_key(owner), model)
  local bytes = stored_bytes(owner) + tonumber(ARGV[4])
  if bytes > tonumber(ARGV[5]) then return { 'full', string.format('%.0f', bytes) } end
  local items = stored_items(owner) + 1
  if items > tonumber(ARGV[6]) then return { 'crowded', string.format('%.0f', items) } end
  redis.call('HSET', arriving_key(owner), model, ARGV[4])
  redis.call('PEXPIRE', arriving_key(owner), ARGV[7])
end
pin(uploading_key(model), ARGV[7])
return { 'pinned', '0' }
