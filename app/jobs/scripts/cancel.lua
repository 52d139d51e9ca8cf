-- Cancels a job: it leaves its computation, which stops at the next phase if no other job waits for it.
-- ARGV: keep_ms, job
local job = ARGV[2]
local now = now_ms()
local v = redis.call('HMGET', job_key(job), 'state', 'content')
if not v[1] then return false end
if not NEXT[v[1]] or v[1] == 'cancelling' then return v[1] end
local content = v[2]
redis.call('ZREM', waiting_key(content), job)
local last = redis.call('ZCARD', waiting_key(content)) == 0
if last and redis.call('HGET', computation_key(content), 'state') == 'running' then
  redis.call('SADD', stopping_key(content), job)
  transition(job, 'cancelling', now)
else
  transition(job, 'cancelled', now)
end
release(content)
return redis.call('HGET', job_key(job), 'state')
