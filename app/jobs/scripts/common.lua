-- Shared by every script: key names, the state machine of a job and the life of a computation (API-5).
-- ARGV[1] is always how long a finished job is kept, in ms. Times are the server's own, so clocks never differ.
local KEEP_FINISHED_MS = tonumber(ARGV[1])
local EVENTS_KEPT = 1000

local FENCE_KEY = 'tessera:fence'          -- counter: every queueing of a computation draws a new fence
local OUTBOX_KEY = 'tessera:outbox'        -- zset: computations that need a delivery, by when it is due
local LEASES_KEY = 'tessera:leases'        -- zset: computations being worked on, by when the lease ends
local DEADLINES_KEY = 'tessera:deadlines'  -- zset: running jobs, by when their time limit is reached
local STOPPED_KEY = 'tessera:stopped'      -- set while a service that was stopped on purpose is down
local COUNTS_KEY = 'tessera:counts'        -- hash: totals for metrics

local function job_key(job) return 'tessera:job:' .. job end
local function events_key(job) return 'tessera:job:' .. job .. ':events' end
local function computation_key(content) return 'tessera:computation:' .. content end
local function waiting_key(content) return 'tessera:computation:' .. content .. ':waiting' end
local function stopping_key(content) return 'tessera:computation:' .. content .. ':stopping' end
local function queue_key(queue) return 'tessera:queue:' .. queue end
local function model_key(model) return 'tessera:model:' .. model end
local function users_key(model) return 'tessera:model:' .. model .. ':computations' end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The whole state machine of a job. A state without an entry is final.
local NEXT = {
  queued = { running = true, succeeded = true, failed = true, cancelled = true },
  running = { queued = true, succeeded = true, failed = true, cancelling = true, cancelled = true },
  cancelling = { cancelled = true },
}

local function event(job)
  local v = redis.call('HMGET', job_key(job), 'state', 'phase', 'step', 'total', 'attempts')
  local data = { state = v[1], phase = v[2] or nil, step = tonumber(v[3] or 0), total = tonumber(v[4] or 0),
                 attempts = tonumber(v[5] or 0) }
  redis.call('XADD', events_key(job), 'MAXLEN', '~', EVENTS_KEPT, '*', 'state', v[1], 'data', cjson.encode(data))
end

-- Compare and set: moves a job to a state if its present one allows it; further arguments are fields to set.
local function transition(job, to, now, ...)
  local key = job_key(job)
  local from = redis.call('HGET', key, 'state')
  if not from or not NEXT[from] or not NEXT[from][to] then return false end
  redis.call('HSET', key, 'state', to, 'changed_ms', now, ...)
  if not NEXT[to] then
    redis.call('HSET', key, 'finished_ms', now)
    redis.call('HINCRBY', COUNTS_KEY, 'jobs_' .. to, 1)
  end
  if to ~= 'running' then redis.call('ZREM', DEADLINES_KEY, job) end
  event(job)
  if not NEXT[to] then
    redis.call('PEXPIRE', key, KEEP_FINISHED_MS)
    redis.call('PEXPIRE', events_key(job), KEEP_FINISHED_MS)
  end
  return true
end

local function waiting(content) return redis.call('ZRANGE', waiting_key(content), 0, -1) end

-- A job starts to run: its own time limit counts from here.
local function start_job(job, now, attempts)
  local key = job_key(job)
  redis.call('HSETNX', key, 'started_ms', now)
  if transition(job, 'running', now, 'attempts', attempts) then
    redis.call('ZADD', DEADLINES_KEY, now + tonumber(redis.call('HGET', key, 'time_limit_ms')), job)
  end
end

-- Puts a computation into the queue under a new fence and asks for a delivery.
local function enqueue(content, now)
  local key = computation_key(content)
  local fence = redis.call('INCR', FENCE_KEY)
  redis.call('HDEL', key, 'worker', 'phase', 'step', 'total')
  redis.call('HSET', key, 'state', 'queued', 'fence', fence, 'queued_ms', now, 'sends', 0)
  redis.call('ZADD', queue_key(redis.call('HGET', key, 'queue')), fence, content)
  redis.call('ZADD', OUTBOX_KEY, now, content)
  redis.call('ZREM', LEASES_KEY, content)
end

-- Forgets a computation. Its fence was unique, so whoever still works on it finds every door closed.
local function drop(content)
  local key = computation_key(content)
  local v = redis.call('HMGET', key, 'queue', 'model')
  if v[1] then redis.call('ZREM', queue_key(v[1]), content) end
  if v[2] and v[2] ~= '' then redis.call('SREM', users_key(v[2]), content) end
  redis.call('ZREM', OUTBOX_KEY, content)
  redis.call('ZREM', LEASES_KEY, content)
  redis.call('DEL', key, waiting_key(content), stopping_key(content))
end

-- The work of a stopping computation has ended (or no longer matters): its cancelled jobs say so.
local function finish_stopping(content, now)
  for _, job in ipairs(redis.call('SMEMBERS', stopping_key(content))) do transition(job, 'cancelled', now) end
  drop(content)
end

-- A job left; a computation without jobs is forgotten if queued and told to stop if running.
local function release(content)
  if redis.call('ZCARD', waiting_key(content)) > 0 then return end
  local state = redis.call('HGET', computation_key(content), 'state')
  if state == 'queued' then drop(content)
  elseif state == 'running' then redis.call('HSET', computation_key(content), 'state', 'stopping') end
end

local function fail_job(job, content, now, problem)
  redis.call('ZREM', waiting_key(content), job)
  transition(job, 'failed', now, 'problem', cjson.encode(problem))
  release(content)
end

-- The worker of a running computation is gone: back to the queue, or the end if it had its attempts.
local function abandon(content, now, max_attempts)
  local key = computation_key(content)
  local v = redis.call('HMGET', key, 'state', 'attempts')
  if v[1] == 'stopping' then
    finish_stopping(content, now)
    return 'stopped'
  elseif v[1] ~= 'running' then
    redis.call('ZREM', LEASES_KEY, content)
    return 'none'
  end
  redis.call('HINCRBY', COUNTS_KEY, 'attempts_lost', 1)
  if tonumber(v[2]) >= max_attempts then
    local problem = cjson.encode({
      code = 'worker_lost', stage = 'service', actual = tonumber(v[2]), limit = max_attempts,
      message = 'the worker was lost during each attempt',
      hint = 'Submit it again; if it is lost again, set a memory_limit_bytes or report it',
    })
    for _, job in ipairs(waiting(content)) do transition(job, 'failed', now, 'problem', problem) end
    drop(content)
    return 'failed'
  end
  for _, job in ipairs(waiting(content)) do
    redis.call('HDEL', job_key(job), 'phase', 'step', 'total')
    transition(job, 'queued', now)
  end
  enqueue(content, now)
  return 'queued'
end
