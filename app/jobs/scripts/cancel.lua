-- Cancels a job; of a sweep all points that are not final, so that it ends with the last of them.
-- ARGV: keep_ms, job
local job = ARGV[2]
local now = now_ms()
local v = redis.call('HMGET', job_key(job), 'state', 'kind', 'total')
if not v[1] then return false end
if v[2] == 'sweep' then
  transition(job, 'cancelling', now) -- one that is queued still is cancelled by its points alone
  for number = 0, tonumber(v[3]) - 1 do cancel_job(point_of(job, number), now) end
else
  cancel_job(job, now)
end
return redis.call('HGET', job_key(job), 'state')
