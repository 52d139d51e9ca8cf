-- Shared by every script: key names, the state machine of a job and the life of a computation (API-5).
-- ARGV[1] is always how long a finished job is kept, in ms. Times are the server's own, so clocks never differ. They may
-- be set at any moment, so what ends a lease or a running job is measured by those who work or watch (leases.py).
local KEEP_FINISHED_MS = tonumber(ARGV[1])
local EVENTS_KEPT = 1000
local NEWEST_KEPT = 256
local SHARE_FOR_NEW = 0.8

local FENCE_KEY = 'tessera:fence'          -- counter: every queueing of a computation draws a new fence
local TURN_KEY = 'tessera:turn'            -- counter: every delivery that is handed out draws a number
local QUEUES_KEY = 'tessera:queues'        -- set: queues in which computations wait
local WORKERS_KEY = 'tessera:workers'      -- zset: workers, by when their last sign of life is too old (s)
local SERVED_KEY = 'tessera:workers:served' -- hash: of each worker its identity, queues and slots, as JSON
local APIS_KEY = 'tessera:apis'            -- zset: identities of API processes, by when their last sign is too old (s)
local BEAT_KEY = 'tessera:beat'            -- counter: every sign of life of a lease draws a number
local LEASES_KEY = 'tessera:leases:beats'  -- zset: computations being worked on, by their last sign of life
-- The same of workers before 0.12. An API of then ends what is in it by the time of day, which no sign of ours tells.
local FORMER_LEASES_KEY = 'tessera:leases'
local ENDING_KEY = 'tessera:jobs:ending'   -- zset: finished jobs as `ending` writes them, by when their records expire
local UNFINISHED_KEY = 'tessera:unfinished' -- zset: jobs that wait for a computation, by when they were accepted
local COUNTS_KEY = 'tessera:counts'        -- hash: totals for metrics
local NEWEST_KEY = 'tessera:packages:newest' -- zset: packages that were made or asked for last, by when

-- The key of what belongs to an owner; '' is the owner of requests without a key, and of what was made before owners.
local function owned(owner, name)
  if not owner or owner == '' then return 'tessera:' .. name end
  return 'tessera:owner:' .. owner .. ':' .. name
end
local function jobs_key(owner) return owned(owner, 'jobs') end -- zset: jobs that were asked for (no points), by when
local function models_key(owner) return owned(owner, 'models') end -- zset: models, by when they were uploaded
local function profiles_key(owner) return owned(owner, 'profiles') end -- zset: profiles, by when they were uploaded
local function profile_names_key(owner) return owned(owner, 'profile-names') end -- hash: the latest digest of a name
local function model_key(owner, model) return owned(owner, 'model:' .. model) end
local function packages_key(owner, model) return owned(owner, 'model:' .. model .. ':packages') end
local function profile_key(owner, digest) return owned(owner, 'profile:' .. digest) end
local function unfinished_key(owner) return 'tessera:owner:' .. (owner or '') .. ':unfinished' end -- as UNFINISHED_KEY
local function bytes_key(owner) return 'tessera:owner:' .. owner .. ':bytes' end -- of the owner's models
-- No owner has a slash in the name.
local function arriving_key(owner) return 'tessera:owner:' .. owner .. ':arriving' end -- hash: bytes by model
local function attached_key(owner) return 'tessera:owner:' .. (owner or '') .. ':attached' end -- hash: bytes by job
local function ending(job, owner) return (not owner or owner == '') and job or owner .. '/' .. job end

local function job_key(job) return 'tessera:job:' .. job end
local function events_key(job) return 'tessera:job:' .. job .. ':events' end
local function computation_key(content) return 'tessera:computation:' .. content end
local function stop_key(worker) return 'tessera:stopping:' .. worker end -- a worker that was told to stop, for a day
local function waiting_key(content) return 'tessera:computation:' .. content .. ':waiting' end
local function stopping_key(content) return 'tessera:computation:' .. content .. ':stopping' end
local function queue_key(queue) return 'tessera:queue:' .. queue end -- what is queued, by fence
local function turns_key(queue) return queue_key(queue) .. ':turns' end -- owners with a line, by their last turn
local function line_key(queue, owner) return queue_key(queue) .. ':line:' .. owner end -- what was not handed out, by fence
local function sent_key(queue) return queue_key(queue) .. ':sent' end -- what was handed out, by when it counts as lost
-- The bytes of a model are shared: their computations and the owners with a name are of all owners together.
local function users_key(model) return 'tessera:model:' .. model .. ':computations' end
local function owners_key(model) return 'tessera:model:' .. model .. ':owners' end
local function pinned_key(digest) return 'tessera:blob:' .. digest .. ':pinned' end
local function uploading_key(model) return 'tessera:model:' .. model .. ':uploading' end -- a pin of uploads
local function removing_key(digest) return 'tessera:blob:' .. digest .. ':removing' end

-- A blob that is about to be written or referred to is not removed before its record is there.
local function pin(key, pin_ms)
  redis.call('INCR', key)
  redis.call('PEXPIRE', key, pin_ms)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- How a job was accepted: its result was cached (hit), its work is under way (shared) or has to be done (miss).
local function count_accepted(kind, result)
  redis.call('HINCRBY', COUNTS_KEY, 'jobs_accepted:' .. kind .. ':' .. result, 1)
end

-- The whole state machine of a job. A state without an entry is final.
local NEXT = {
  queued = { running = true, succeeded = true, failed = true, cancelled = true },
  running = { queued = true, succeeded = true, failed = true, cancelling = true, cancelled = true },
  cancelling = { cancelled = true },
}

-- A sweep's points are jobs with a name of their own each, numbered from 0 in the order of its table.
local function point_of(sweep, number) return sweep .. 'p' .. number end

-- `planned`: whether the plan can be read, the provisional one while the job runs and the final one of its outcome.
local function event(job)
  local v = redis.call('HMGET', job_key(job), 'state', 'phase', 'step', 'total', 'attempts', 'provisional_plan', 'plan')
  local planned = v[7] or (v[1] == 'running' and v[6])
  local data = { state = v[1], phase = v[2] or nil, step = tonumber(v[3] or 0), total = tonumber(v[4] or 0),
                 attempts = tonumber(v[5] or 0), planned = planned and true or false }
  redis.call('XADD', events_key(job), 'MAXLEN', '~', EVENTS_KEPT, '*', 'state', v[1], 'data', cjson.encode(data))
end

local follow_point

-- Compare and set: moves a job to a state if its present one allows it; further arguments are fields to set.
-- A point of a sweep takes its sweep along, and expires with it.
local function transition(job, to, now, ...)
  local key = job_key(job)
  local v = redis.call('HMGET', key, 'state', 'sweep', 'owner', 'kind')
  local from, sweep, owner, kind = v[1], v[2], v[3], v[4] or 'compilation'
  if not from or not NEXT[from] or not NEXT[from][to] then return false end
  redis.call('HSET', key, 'state', to, 'changed_ms', now, ...)
  if not NEXT[to] then
    redis.call('ZREM', UNFINISHED_KEY, job)
    redis.call('ZREM', unfinished_key(owner), job)
    redis.call('HSET', key, 'finished_ms', now)
    if not sweep then redis.call('HSET', key, 'expires_ms', now + KEEP_FINISHED_MS) end
    redis.call('HINCRBY', COUNTS_KEY, 'jobs_finished:' .. kind .. ':' .. to, 1)
  end
  event(job)
  if sweep then
    follow_point(sweep, to, now)
  elseif not NEXT[to] then
    redis.call('PEXPIRE', key, KEEP_FINISHED_MS)
    redis.call('PEXPIRE', events_key(job), KEEP_FINISHED_MS)
    redis.call('ZADD', ENDING_KEY, now + KEEP_FINISHED_MS, ending(job, owner))
  end
  return true
end

-- The state of a sweep whose points are all final.
local function outcome_of_points(state, succeeded, cancelled, total)
  if state == 'cancelling' or cancelled == total then return 'cancelled' end
  if succeeded > 0 then return 'succeeded' end
  return 'failed'
end

local function finish_sweep(sweep, now)
  local v = redis.call('HMGET', job_key(sweep), 'state', 'total', 'points_succeeded', 'points_cancelled')
  local total = tonumber(v[2])
  local to = outcome_of_points(v[1], tonumber(v[3] or 0), tonumber(v[4] or 0), total)
  if to == 'failed' then
    transition(sweep, to, now, 'problem', cjson.encode({
      code = 'no_point_succeeded', stage = 'sweep', actual = 0, limit = total,
      message = 'none of the points of the sweep succeeded',
      hint = 'The sweep says of each point why',
    }))
  else
    transition(sweep, to, now)
  end
  for number = 0, total - 1 do
    redis.call('HSET', job_key(point_of(sweep, number)), 'expires_ms', now + KEEP_FINISHED_MS)
    redis.call('PEXPIRE', job_key(point_of(sweep, number)), KEEP_FINISHED_MS)
    redis.call('PEXPIRE', events_key(point_of(sweep, number)), KEEP_FINISHED_MS)
  end
end

-- A sweep has no computation of its own: it starts with the first of its points and ends with the last.
function follow_point(sweep, to, now)
  local key = job_key(sweep)
  if redis.call('HGET', key, 'state') == 'queued' and to ~= 'queued' and to ~= 'cancelled' then
    redis.call('HSETNX', key, 'started_ms', now)
    transition(sweep, 'running', now)
  end
  if NEXT[to] then return end
  local done = redis.call('HINCRBY', key, 'step', 1)
  redis.call('HINCRBY', key, 'points_' .. to, 1)
  if done == tonumber(redis.call('HGET', key, 'total')) then finish_sweep(sweep, now) else event(sweep) end
end

local function waiting(content) return redis.call('ZRANGE', waiting_key(content), 0, -1) end

-- A job starts to run: its own time limit counts from the next sign of life of the work, if not from its beginning.
local function start_job(job, now, attempts)
  local key = job_key(job)
  redis.call('HSETNX', key, 'started_ms', now)
  redis.call('HDEL', key, 'timed_from_ms')
  transition(job, 'running', now, 'attempts', attempts)
end

-- A sign of life of the work under a lease.
local function beat(content) redis.call('ZADD', LEASES_KEY, redis.call('INCR', BEAT_KEY), content) end

local function end_lease(content)
  for _, leases in ipairs({ LEASES_KEY, FORMER_LEASES_KEY }) do redis.call('ZREM', leases, content) end
end

-- Puts a computation into the line of its owner. Owners take turns; one who had no line begins at the end.
local function line_up(content)
  local v = redis.call('HMGET', computation_key(content), 'queue', 'owner', 'fence')
  local queue, owner = v[1], v[2] or ''
  redis.call('ZADD', line_key(queue, owner), v[3], content)
  if not redis.call('ZSCORE', turns_key(queue), owner) then
    redis.call('ZADD', turns_key(queue), redis.call('INCR', TURN_KEY), owner)
  end
end

local function leave_line(content, queue, owner)
  redis.call('ZREM', line_key(queue, owner), content)
  if redis.call('EXISTS', line_key(queue, owner)) == 0 then redis.call('ZREM', turns_key(queue), owner) end
end

local function leave_queue(content)
  local v = redis.call('HMGET', computation_key(content), 'queue', 'owner')
  local queue = v[1]
  if not queue then return end
  leave_line(content, queue, v[2] or '')
  redis.call('ZREM', sent_key(queue), content)
  redis.call('ZREM', queue_key(queue), content)
  if redis.call('EXISTS', queue_key(queue)) == 0 then redis.call('SREM', QUEUES_KEY, queue) end
end

-- How many computations live workers do at once, by the name of the queue. Workers of versions before 0.12 say nothing.
-- A sign of life that holds longer than `ttl_s` from now is from before the clock was set back.
local function slots_by_queue(now, ttl_s)
  local slots = {}
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', WORKERS_KEY, now / 1000, now / 1000 + ttl_s)) do
    local served = cjson.decode(redis.call('HGET', SERVED_KEY, worker) or '{"queues":["short","long"],"slots":1}')
    for _, queue in ipairs(served.queues) do slots[queue] = (slots[queue] or 0) + served.slots end
  end
  return slots
end

-- Puts a computation into its queue under a new fence; the relay hands it out in its turn.
local function enqueue(content, now)
  local key = computation_key(content)
  local fence = redis.call('INCR', FENCE_KEY)
  local queue = redis.call('HGET', key, 'queue')
  redis.call('HDEL', key, 'worker', 'phase', 'step', 'total', 'provisional_plan')
  redis.call('HSET', key, 'state', 'queued', 'fence', fence, 'queued_ms', now, 'sends', 0)
  redis.call('ZADD', queue_key(queue), fence, content)
  redis.call('SADD', QUEUES_KEY, queue)
  end_lease(content)
  line_up(content)
end

-- Forgets a computation. Its fence was unique, so whoever still works on it finds every door closed.
local function drop(content)
  local key = computation_key(content)
  local model = redis.call('HGET', key, 'model')
  leave_queue(content)
  if model and model ~= '' then redis.call('SREM', users_key(model), content) end
  end_lease(content)
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

-- The time that a job has left; a job that joined later counts from the first call that sees it.
local function left_ms(job, elapsed)
  redis.call('HSETNX', job_key(job), 'timed_from_ms', elapsed)
  local times = redis.call('HMGET', job_key(job), 'timed_from_ms', 'time_limit_ms')
  return tonumber(times[1]) + tonumber(times[2]) - elapsed
end

-- Fails the jobs that wait for a running computation and whose own limits it exceeds; it goes on for the others.
-- Returns the tightest memory limit of those and the time until the first of their time limits (0: there are none).
local function enforce_limits(content, memory, elapsed, now)
  local tightest, soonest = 0, 0
  for _, job in ipairs(waiting(content)) do
    local limit, left = tonumber(redis.call('HGET', job_key(job), 'memory_limit_bytes')), left_ms(job, elapsed)
    if memory > limit then
      fail_job(job, content, now, {
        code = 'memory_limit', stage = 'service', actual = memory, limit = limit,
        message = 'the job needs more memory than memory_limit_bytes allows',
        hint = 'Raise memory_limit_bytes or give it less to do',
      })
    elseif left <= 0 then
      fail_job(job, content, now, {
        code = 'time_limit', stage = 'service', limit = tonumber(redis.call('HGET', job_key(job), 'time_limit_ms')) / 1000,
        message = 'the job took longer than time_limit_s allows',
        hint = 'Raise time_limit_s or give it less to do',
      })
    else
      if tightest == 0 or limit < tightest then tightest = limit end
      if soonest == 0 or left < soonest then soonest = left end
    end
  end
  return tightest, soonest
end

-- Takes back an attempt whose worker was told to stop; a worker's token is its name, a slash and more.
local function forgive_stopped(key, worker)
  local name = worker and worker:match('^[^/]+')
  if not name or redis.call('EXISTS', stop_key(name)) == 0 then return false end
  redis.call('HINCRBY', key, 'attempts', -1)
  return true
end

-- The worker of a running computation is gone: back to the queue, or the end if it had its attempts.
local function abandon(content, now, max_attempts)
  local key = computation_key(content)
  local v = redis.call('HMGET', key, 'state', 'attempts', 'worker')
  if v[1] == 'stopping' then
    finish_stopping(content, now)
    return 'stopped'
  elseif v[1] ~= 'running' then
    end_lease(content)
    return 'none'
  end
  local forgiven = forgive_stopped(key, v[3])
  redis.call('HINCRBY', COUNTS_KEY, forgiven and 'attempts_given_back' or 'attempts_lost', 1)
  if not forgiven and tonumber(v[2]) >= max_attempts then
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
    redis.call('HDEL', job_key(job), 'phase', 'step', 'total', 'provisional_plan')
    transition(job, 'queued', now)
  end
  enqueue(content, now)
  return 'queued'
end

-- An owner's newest package of a model for a profile, as long as the owner has the model, and the newest ones of all
-- (SHAPE-7).
local function remember_package(owner, model, profile, outcome, now)
  if outcome.package and redis.call('EXISTS', model_key(owner, model)) == 1 then
    redis.call('HSET', packages_key(owner, model), profile, outcome.package)
    redis.call('ZADD', NEWEST_KEY, now, outcome.package)
    redis.call('ZREMRANGEBYRANK', NEWEST_KEY, 0, -1 - NEWEST_KEPT)
  end
end

-- A job whose outcome was known (fields of text) is final at once.
local function finish_known(job, outcome, now)
  local v = redis.call('HMGET', job_key(job), 'owner', 'model', 'profile')
  for name, value in pairs(outcome) do
    if name ~= 'state' then redis.call('HSET', job_key(job), name, value) end
  end
  remember_package(v[1], v[2], v[3], outcome, now)
  transition(job, outcome.state, now, 'cached', 1)
end

-- A queued job waits for a computation, which is made of `work` (fields of text) and queued unless it is there. Returns
-- whether it was there.
local function wait_for(job, content, work, now)
  local key = computation_key(content)
  local state = redis.call('HGET', key, 'state')
  if state == 'stopping' then -- the old work is beyond recall: its fence closes and the new job starts afresh
    finish_stopping(content, now)
    state = false
  end
  if not state then
    redis.call('HSET', key, 'attempts', 0, 'created_ms', now)
    for name, value in pairs(work) do redis.call('HSET', key, name, value) end
    if work.model ~= '' then redis.call('SADD', users_key(work.model), content) end
    enqueue(content, now)
  end
  redis.call('ZADD', waiting_key(content), now, job)
  if state == 'running' then
    local v = redis.call('HMGET', key, 'attempts', 'phase', 'step', 'total', 'provisional_plan')
    if v[5] then redis.call('HSET', job_key(job), 'provisional_plan', v[5]) end
    if v[2] then redis.call('HSET', job_key(job), 'phase', v[2], 'step', v[3], 'total', v[4]) end
    start_job(job, now, v[1])
  end
  return state and true or false
end

-- Records a job with its fields and, unless an outcome is known, the computation it waits for, queued.
-- wanted: job, content, time_limit_ms, attached_bytes, fields (of text), work (of wait_for), outcome (of text, or nil)
local function record_job(wanted, now)
  local job, fields = wanted.job, wanted.fields
  redis.call('HSET', job_key(job), 'state', 'queued', 'content', wanted.content, 'created_ms', now, 'changed_ms', now,
             'attempts', 0, 'time_limit_ms', wanted.time_limit_ms)
  for name, value in pairs(fields) do redis.call('HSET', job_key(job), name, value) end
  if not fields.sweep then redis.call('ZADD', jobs_key(fields.owner), now, job) end
  if wanted.attached_bytes > 0 then redis.call('HSET', attached_key(fields.owner), job, wanted.attached_bytes) end
  if wanted.outcome then
    count_accepted(fields.kind, 'hit')
    finish_known(job, wanted.outcome, now)
    return 'finished'
  end
  event(job)
  redis.call('ZADD', UNFINISHED_KEY, now, job)
  redis.call('ZADD', unfinished_key(fields.owner), now, job)
  local is_shared = wait_for(job, wanted.content, wanted.work, now)
  count_accepted(fields.kind, is_shared and 'shared' or 'miss')
  return 'accepted'
end

-- An owner has got a model (INCRBY) or lost one (DECRBY).
local function count_bytes(owner, command, bytes)
  if redis.call('EXISTS', bytes_key(owner)) == 1 then redis.call(command, bytes_key(owner), bytes) end
end

-- Models and profiles of an owner.
local function stored_items(owner)
  return redis.call('ZCARD', models_key(owner)) + redis.call('ZCARD', profiles_key(owner))
end

-- Bytes of the models that an owner has, of those that move into place, and of files that came with jobs that are kept.
local function stored_bytes(owner)
  local sum = tonumber(redis.call('GET', bytes_key(owner)))
  if not sum then -- added up once, for an owner may have very many models
    sum = 0
    for _, model in ipairs(redis.call('ZRANGE', models_key(owner), 0, -1)) do
      sum = sum + tonumber(redis.call('HGET', model_key(owner, model), 'size_bytes') or 0)
    end
    redis.call('SET', bytes_key(owner), string.format('%.0f', sum))
  end
  for _, key in ipairs({ arriving_key(owner), attached_key(owner) }) do
    for _, size in ipairs(redis.call('HVALS', key)) do sum = sum + tonumber(size) end
  end
  return sum
end

-- How much memory is used, if it is too much for anything new; nil if not. The rest is for what was accepted: events and
-- outcomes, and Celery's messages, without which nothing is worked on and which Redis refuses at its limit.
local function too_much_memory()
  local memory = redis.call('INFO', 'memory')
  local used, most = memory:match('used_memory:(%d+)'), memory:match('maxmemory:(%d+)')
  return tonumber(most) > 0 and tonumber(used) > tonumber(most) * SHARE_FOR_NEW and used or nil
end

-- As Redis answers at its limit.
local NO_MEMORY = redis.error_reply("OOM used memory > 'maxmemory' as far as it is for what is new")

-- Why new jobs are refused at the moment, with what there is too much of; nil if there is room.
local function no_room(request)
  local own = redis.call('ZCARD', unfinished_key(request.owner))
  if own + request.jobs > request.most_of_owner then return { 'too_many_jobs', tostring(own) } end
  if request.attached_bytes > 0 then
    local bytes = stored_bytes(request.owner) + request.attached_bytes
    if bytes > request.most_bytes then return { 'too_many_bytes', string.format('%.0f', bytes) } end
  end
  local waiting = redis.call('ZCARD', UNFINISHED_KEY)
  if waiting + request.jobs > request.most_waiting then return { 'queue_full', tostring(waiting) } end
  local used = too_much_memory()
  if used then return { 'records_full', used } end
  return nil
end

-- The answer to a request that was recorded before. It is counted, for who waits for the disk (durability.py) waits for
-- what the same connection wrote.
local function repeated(answer, job)
  redis.call('HINCRBY', COUNTS_KEY, 'requests_repeated', 1)
  return { answer, job }
end

-- What a request for a job is answered where nothing is to be recorded: it was asked before, or its model is unknown.
-- request: job, owner, model, idempotency (key or ''), fingerprint, idempotency_ms, jobs, most_of_owner,
-- most_waiting, attached_bytes, most_bytes; nil: the key is taken, record it
local function answered_before(request)
  local job, idempotency = request.job, request.idempotency
  if redis.call('EXISTS', job_key(job)) == 1 then -- our own call, sent twice
    return repeated('accepted', job)
  end
  local earlier = idempotency ~= '' and redis.call('GET', idempotency)
  if earlier then
    earlier = cjson.decode(earlier)
    if redis.call('EXISTS', job_key(earlier.job)) == 1 then
      return repeated(earlier.fingerprint == request.fingerprint and 'replayed' or 'conflict', earlier.job)
    end
  end
  if request.model ~= '' and redis.call('EXISTS', model_key(request.owner, request.model)) == 0 then
    return { 'unknown_model', '' }
  end
  local refused = no_room(request)
  if refused then return refused end
  if idempotency ~= '' then
    local taken = cjson.encode({ job = job, fingerprint = request.fingerprint })
    redis.call('SET', idempotency, taken, 'PX', request.idempotency_ms)
  end
  return nil
end

-- A job leaves its computation, which stops at the next phase if no other job waits for it.
local function cancel_job(job, now)
  local v = redis.call('HMGET', job_key(job), 'state', 'content')
  if not v[1] or not NEXT[v[1]] or v[1] == 'cancelling' then return end
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
end
