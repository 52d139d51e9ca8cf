-- Moves the jobs of a queued computation to another content key and queue; they say so. The new computation may be there
-- already, or its outcome known.
-- ARGV: keep_ms, content, fence, new content, work (JSON: the fields of the computation that change), outcome (JSON or '')
local old, new = ARGV[2], ARGV[4]
local key, now = computation_key(old), now_ms()
local kept = redis.call('HMGET', key, 'state', 'fence', 'queue')
if kept[1] ~= 'queued' or kept[2] ~= ARGV[3] then return 'kept' end
local work = cjson.decode(ARGV[5])
for _, name in ipairs({ 'model', 'model_name', 'kind', 'owner', 'trace', 'request_id' }) do
  work[name] = redis.call('HGET', key, name) or nil
end
local jobs = waiting(old)
drop(old)
if redis.call('EXISTS', queue_key(kept[3])) == 0 then redis.call('DEL', kept[3]) end -- every fence in Celery's list is void

local function tell_version(job)
  local before = redis.call('HGET', job_key(job), 'compiler_version')
  if before == work.version then return end
  redis.call('HSETNX', job_key(job), 'requested_version', before)
  redis.call('HSET', job_key(job), 'compiler_version', work.version)
end

for _, job in ipairs(jobs) do
  local sweep = redis.call('HGET', job_key(job), 'sweep')
  tell_version(job)
  if sweep then tell_version(sweep) end
  redis.call('HSET', job_key(job), 'content', new, 'profile', work.profile, 'options', work.options)
  if ARGV[6] ~= '' then
    finish_known(job, cjson.decode(ARGV[6]), now)
  else
    wait_for(job, new, work, now)
    if redis.call('HGET', job_key(job), 'state') == 'queued' then event(job) end
  end
  redis.call('HINCRBY', COUNTS_KEY, 'jobs_rekeyed', 1)
end
return 'moved'
