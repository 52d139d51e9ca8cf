-- Ends what ran out: jobs past their time limit, computations whose lease ended. Returns what was done. Takes jobs
-- whose records expired off the list.
-- ARGV: keep_ms, max_attempts, count
local now, count, done = now_ms(), tonumber(ARGV[3]), {}
for _, job in ipairs(redis.call('ZRANGEBYSCORE', DEADLINES_KEY, '-inf', now, 'LIMIT', 0, count)) do
  local v = redis.call('HMGET', job_key(job), 'content', 'time_limit_ms')
  redis.call('ZREM', DEADLINES_KEY, job)
  if v[1] then
    local limit_s = tonumber(v[2]) / 1000
    fail_job(job, v[1], now, {
      code = 'time_limit', stage = 'service', limit = limit_s,
      message = 'the job took longer than time_limit_s allows',
      hint = 'Raise time_limit_s or give it less to do',
    })
    table.insert(done, { 'time_limit', job })
  end
end
for _, content in ipairs(redis.call('ZRANGEBYSCORE', LEASES_KEY, '-inf', now, 'LIMIT', 0, count)) do
  table.insert(done, { abandon(content, now, tonumber(ARGV[2])), content })
end
for _, ended in ipairs(redis.call('ZRANGEBYSCORE', ENDING_KEY, '-inf', now, 'LIMIT', 0, count)) do
  local owner, job = ended:match('^([^/]*)/(.*)$')
  redis.call('ZREM', ENDING_KEY, ended)
  redis.call('ZREM', jobs_key(owner), job or ended)
end
return done
