-- Gives a queued computation to the worker that presents its fence; anything else is a duplicate or too late. It stays
-- queued if it is for another version of the compiler or for another store.
-- ARGV: keep_ms, content, fence, worker, version, store
local content, fence, worker = ARGV[2], ARGV[3], ARGV[4]
local key, now = computation_key(content), now_ms()
local v = redis.call('HMGET', key, 'state', 'fence', 'worker', 'version', 'store')
if v[2] ~= fence or v[4] ~= ARGV[5] or v[5] ~= ARGV[6] then return false end
if v[1] == 'queued' then
  local attempts = redis.call('HINCRBY', key, 'attempts', 1)
  redis.call('HSET', key, 'state', 'running', 'worker', worker, 'started_ms', now, 'elapsed_ms', 0)
  beat(content)
  leave_queue(content)
  redis.call('HINCRBY', COUNTS_KEY, 'attempts_started', 1)
  for _, job in ipairs(waiting(content)) do
    start_job(job, now, attempts)
    redis.call('HSET', job_key(job), 'timed_from_ms', 0)
  end
elseif v[1] ~= 'running' or v[3] ~= worker then -- our own call, sent twice, is answered again
  return false
end
local fields = redis.call('HMGET', key, 'model', 'model_name', 'profile', 'options', 'attempts', 'kind', 'trace',
                          'request_id', 'queued_ms', 'started_ms')
table.insert(fields, table.concat(redis.call('ZRANGE', waiting_key(content), 0, 9), ' ')) -- some of many, for the log
return fields
