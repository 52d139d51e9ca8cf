-- Tells every waiting job which phase its computation is in.
-- ARGV: keep_ms, content, fence, phase, step, total
local content = ARGV[2]
local key = computation_key(content)
local v = redis.call('HMGET', key, 'state', 'fence')
if v[2] ~= ARGV[3] or (v[1] ~= 'running' and v[1] ~= 'stopping') then return 'lost' end
if v[1] == 'stopping' then return 'stop' end
redis.call('HSET', key, 'phase', ARGV[4], 'step', ARGV[5], 'total', ARGV[6])
for _, job in ipairs(waiting(content)) do
  redis.call('HSET', job_key(job), 'phase', ARGV[4], 'step', ARGV[5], 'total', ARGV[6])
  event(job)
end
return 'keep'
