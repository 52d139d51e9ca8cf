-- Tells every waiting job the plan before its programs are made. The blob is already written.
-- ARGV: keep_ms, content, fence, plan (the digest of its bytes)
local content = ARGV[2]
local key = computation_key(content)
local v = redis.call('HMGET', key, 'state', 'fence')
if v[2] ~= ARGV[3] or (v[1] ~= 'running' and v[1] ~= 'stopping') then return 'lost' end
if v[1] == 'stopping' then return 'stop' end
redis.call('HSET', key, 'provisional_plan', ARGV[4])
for _, job in ipairs(waiting(content)) do
  redis.call('HSET', job_key(job), 'provisional_plan', ARGV[4])
  event(job)
end
return 'keep'
