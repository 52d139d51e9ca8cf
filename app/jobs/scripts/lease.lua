-- Gives a queued computation to the worker that presents its fence; anything else is a duplicate or too late.
-- ARGV: keep_ms, content, fence, worker
local content, fence, worker = ARGV[2], ARGV[3], ARGV[4]
local key, now = computation_key(content), now_ms()
local v = redis.call('HMGET', key, 'state', 'fence', 'worker', 'queue')
if v[2] ~= fence then return false end
if v[1] == 'queued' then
  local attempts = redis.call('HINCRBY', key, 'attempts', 1)
  redis.call('HSET', key, 'state', 'running', 'worker', worker, 'started_ms', now)
  beat(content)
  redis.call('ZREM', OUTBOX_KEY, content)
  redis.call('ZREM', queue_key(v[4]), content)
  redis.call('HINCRBY', COUNTS_KEY, 'attempts_started', 1)
  for _, job in ipairs(waiting(content)) do start_job(job, now, attempts) end
elseif v[1] ~= 'running' or v[3] ~= worker then -- our own call, sent twice, is answered again
  return false
end
local fields = redis.call('HMGET', key, 'model', 'model_name', 'profile', 'options', 'attempts', 'kind', 'trace',
                          'request_id', 'queued_ms', 'started_ms')
table.insert(fields, table.concat(redis.call('ZRANGE', waiting_key(content), 0, 9), ' ')) -- some of many, for the log
return fields
