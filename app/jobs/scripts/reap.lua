-- Ends leases whose work was silent for too long, unless it gave a sign of life meanwhile. Takes jobs whose records
-- expired off the list. Returns what was done, and all leases with their last signs of life.
-- Silent work may hang: what exceeded its time limit meanwhile fails by that, and is not tried again.
-- ARGV: keep_ms, max_attempts, count, silent (JSON: triples of computation, last sign of life and seconds since then)
local now, count, done, left = now_ms(), tonumber(ARGV[3]), {}, {}

local function last_sign(content)
  return redis.call('ZSCORE', LEASES_KEY, content) or redis.call('ZSCORE', FORMER_LEASES_KEY, content) or -1
end

for _, lease in ipairs(cjson.decode(ARGV[4])) do
  local content = lease[1]
  if tonumber(last_sign(content)) == lease[2] then
    local v = redis.call('HMGET', computation_key(content), 'state', 'elapsed_ms')
    if v[1] == 'running' then enforce_limits(content, 0, tonumber(v[2] or 0) + lease[3] * 1000, now) end
    table.insert(done, { abandon(content, now, tonumber(ARGV[2])), content })
  end
end
for _, ended in ipairs(redis.call('ZRANGEBYSCORE', ENDING_KEY, '-inf', now, 'LIMIT', 0, count)) do
  local owner, job = ended:match('^([^/]*)/(.*)$')
  redis.call('ZREM', ENDING_KEY, ended)
  redis.call('ZREM', jobs_key(owner), job or ended)
  redis.call('HDEL', attached_key(owner), job or ended)
end
for _, leases in ipairs({ FORMER_LEASES_KEY, LEASES_KEY }) do
  for _, word in ipairs(redis.call('ZRANGE', leases, 0, -1, 'WITHSCORES')) do table.insert(left, word) end
end
return { done, left }
