-- Prolongs a lease, reports memory, and says whether to go on: keep, stop (no job waits) or lost (fence closed).
-- A limit fails the job that set it; the computation goes on for the others.
-- ARGV: keep_ms, content, fence, lease_ms, memory_bytes
local content, memory = ARGV[2], tonumber(ARGV[5])
local key, now = computation_key(content), now_ms()
local v = redis.call('HMGET', key, 'state', 'fence')
if v[2] ~= ARGV[3] or (v[1] ~= 'running' and v[1] ~= 'stopping') then return { 'lost', '0' } end
local tightest = 0
if v[1] == 'running' then
  for _, job in ipairs(waiting(content)) do
    local limit = tonumber(redis.call('HGET', job_key(job), 'memory_limit_bytes'))
    if memory > limit then
      fail_job(job, content, now, {
        code = 'memory_limit', stage = 'service', actual = memory, limit = limit,
        message = 'the job needs more memory than memory_limit_bytes allows',
        hint = 'Raise memory_limit_bytes or give it less to do',
      })
    elseif tightest == 0 or limit < tightest then
      tightest = limit
    end
  end
end
if redis.call('HGET', key, 'state') ~= 'running' then return { 'stop', '0' } end -- the lease is left to run out
redis.call('ZADD', LEASES_KEY, now + tonumber(ARGV[4]), content)
return { 'keep', string.format('%.0f', tightest) }
