-- Prolongs a lease, reports memory and time, and says whether to go on: keep, stop (no job waits) or lost (fence closed).
-- A limit fails the job that set it; the computation goes on for the others. `elapsed_ms` is measured by the worker.
-- Returns the answer, the tightest memory limit and the time until the first time limit is reached (0: unknown).
-- ARGV: keep_ms, content, fence, memory_bytes, elapsed_ms
local content, memory, elapsed = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local key, now = computation_key(content), now_ms()
local v = redis.call('HMGET', key, 'state', 'fence')
if v[2] ~= ARGV[3] or (v[1] ~= 'running' and v[1] ~= 'stopping') then return { 'lost', '0', 0 } end
local tightest, soonest = 0, 0

-- The time that a job has left; a job that joined later counts from the first call that sees it.
local function left_ms(job)
  redis.call('HSETNX', job_key(job), 'timed_from_ms', elapsed)
  local times = redis.call('HMGET', job_key(job), 'timed_from_ms', 'time_limit_ms')
  return tonumber(times[1]) + tonumber(times[2]) - elapsed
end

-- What a job exceeds, or nil.
local function exceeded(memory_limit, left, job)
  if memory > memory_limit then
    return {
      code = 'memory_limit', stage = 'service', actual = memory, limit = memory_limit,
      message = 'the job needs more memory than memory_limit_bytes allows',
      hint = 'Raise memory_limit_bytes or give it less to do',
    }
  elseif left <= 0 then
    return {
      code = 'time_limit', stage = 'service', limit = tonumber(redis.call('HGET', job_key(job), 'time_limit_ms')) / 1000,
      message = 'the job took longer than time_limit_s allows',
      hint = 'Raise time_limit_s or give it less to do',
    }
  end
  return nil
end

if v[1] == 'running' then
  for _, job in ipairs(waiting(content)) do
    local limit, left = tonumber(redis.call('HGET', job_key(job), 'memory_limit_bytes')), left_ms(job)
    local problem = exceeded(limit, left, job)
    if problem then
      fail_job(job, content, now, problem)
    else
      if tightest == 0 or limit < tightest then tightest = limit end
      if soonest == 0 or left < soonest then soonest = left end
    end
  end
end
if redis.call('HGET', key, 'state') ~= 'running' then return { 'stop', '0', 0 } end -- the lease is left to run out
beat(content)
return { 'keep', string.format('%.0f', tightest), soonest }
