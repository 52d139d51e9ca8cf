-- Forgets a job that is final, a sweep with all of its points.
-- ARGV: keep_ms, job
local job = ARGV[2]
local v = redis.call('HMGET', job_key(job), 'state', 'sweep', 'kind', 'total', 'owner')
if not v[1] then return 'unknown' end
if v[2] then return 'point' end
if NEXT[v[1]] then return 'not_final' end
if v[3] == 'sweep' then
  for number = 0, tonumber(v[4]) - 1 do
    redis.call('DEL', job_key(point_of(job, number)), events_key(point_of(job, number)))
  end
end
redis.call('DEL', job_key(job), events_key(job))
redis.call('ZREM', jobs_key(v[5]), job)
redis.call('HDEL', attached_key(v[5]), job)
redis.call('ZREM', ENDING_KEY, ending(job, v[5]))
return 'deleted'
