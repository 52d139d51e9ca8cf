-- Accepts a job: its record, the computation it waits for and the outbox entry, all or nothing (API-5).
-- ARGV: keep_ms, job, content, model, queue, fields (JSON object of text), time_limit_ms,
--       idempotency key or '', fingerprint, idempotency_ms, outcome (JSON object of text) or ''
local job, content, model, queue = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local fields, time_limit_ms = cjson.decode(ARGV[6]), tonumber(ARGV[7])
local idempotency, fingerprint, idempotency_ms, outcome = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local now = now_ms()

if redis.call('EXISTS', job_key(job)) == 1 then return { 'accepted', job } end -- our own call, sent twice
if idempotency ~= '' then
  local earlier = redis.call('GET', idempotency)
  if earlier then
    earlier = cjson.decode(earlier)
    if redis.call('EXISTS', job_key(earlier.job)) == 1 then
      return { earlier.fingerprint == fingerprint and 'replayed' or 'conflict', earlier.job }
    end
  end
end
if model ~= '' and redis.call('EXISTS', model_key(model)) == 0 then return { 'unknown_model', '' } end
if idempotency ~= '' then
  redis.call('SET', idempotency, cjson.encode({ job = job, fingerprint = fingerprint }), 'PX', idempotency_ms)
end

redis.call('HSET', job_key(job), 'state', 'queued', 'content', content, 'created_ms', now, 'changed_ms', now,
           'attempts', 0, 'time_limit_ms', time_limit_ms)
for name, value in pairs(fields) do redis.call('HSET', job_key(job), name, value) end
redis.call('HINCRBY', COUNTS_KEY, 'jobs_accepted', 1)

if outcome ~= '' then
  outcome = cjson.decode(outcome)
  for name, value in pairs(outcome) do
    if name ~= 'state' then redis.call('HSET', job_key(job), name, value) end
  end
  redis.call('HINCRBY', COUNTS_KEY, 'jobs_cached', 1)
  transition(job, outcome.state, now, 'cached', 1)
  return { 'finished', job }
end

event(job)
local key = computation_key(content)
local state = redis.call('HGET', key, 'state')
if state == 'stopping' then -- the old work is beyond recall: its fence closes and the new job starts afresh
  finish_stopping(content, now)
  state = false
end
if not state then
  redis.call('HSET', key, 'model', model, 'model_name', fields.model_name, 'profile', fields.profile, 'options', fields.options,
             'queue', queue, 'kind', fields.kind, 'attempts', 0, 'created_ms', now)
  if model ~= '' then redis.call('SADD', users_key(model), content) end
  enqueue(content, now)
end
redis.call('ZADD', waiting_key(content), now, job)
if state == 'running' then
  local v = redis.call('HMGET', key, 'attempts', 'phase', 'step', 'total')
  if v[2] then redis.call('HSET', job_key(job), 'phase', v[2], 'step', v[3], 'total', v[4]) end
  start_job(job, now, v[1])
end
return { 'accepted', job }
