-- The place of a queued computation, from 1, as owners take turns; 0 if it is not queued.
-- ARGV: keep_ms, content
local content = ARGV[2]
local v = redis.call('HMGET', computation_key(content), 'state', 'queue', 'owner', 'turn')
if v[1] ~= 'queued' then return 0 end
local queue, owner, sent = v[2], v[3] or '', redis.call('ZRANGE', sent_key(v[2]), 0, -1)
local before, is_sent = 0, false
for _, other in ipairs(sent) do
  if other == content then is_sent = true
  elseif tonumber(redis.call('HGET', computation_key(other), 'turn') or 0) < tonumber(v[4] or 0) then before = before + 1 end
end
if is_sent then return before + 1 end
local rank, has_had_turn = redis.call('ZRANK', line_key(queue, owner), content), false
if not rank then return (redis.call('ZRANK', queue_key(queue), content) or 0) + 1 end -- queued by a version before 0.12
before = #sent + rank
for _, other in ipairs(redis.call('ZRANGE', turns_key(queue), 0, -1)) do
  if other == owner then has_had_turn = true
  else before = before + math.min(redis.call('ZCARD', line_key(queue, other)), has_had_turn and rank or rank + 1) end
end
return before + 1
