-- Publishes an outcome under its fence: once, to every waiting job. The blobs it names are already written.
-- ARGV: keep_ms, content, fence, outcome (JSON object of text with `state`, and `degraded`: how many entries of the plan
-- say so) or '' if the work was stopped
local content = ARGV[2]
local key, now = computation_key(content), now_ms()
local v = redis.call('HMGET', key, 'state', 'fence')
if v[2] ~= ARGV[3] or (v[1] ~= 'running' and v[1] ~= 'stopping') then
  redis.call('HINCRBY', COUNTS_KEY, 'publishes_refused', 1)
  return 'refused'
end
if v[1] == 'stopping' then
  finish_stopping(content, now)
  return 'stopped'
end
if ARGV[4] == '' then return 'refused' end -- stopped without having been told to: the lease will tell
local outcome, fields = cjson.decode(ARGV[4]), {}
for name, value in pairs(outcome) do
  if name ~= 'state' and name ~= 'degraded' then
    table.insert(fields, name)
    table.insert(fields, value)
  end
end
local made_of = redis.call('HMGET', key, 'model', 'profile')
for _, job in ipairs(waiting(content)) do
  transition(job, outcome.state, now, unpack(fields))
  remember_package(redis.call('HGET', job_key(job), 'owner'), made_of[1], made_of[2], outcome, now)
end
redis.call('HINCRBY', COUNTS_KEY, 'publishes', 1)
if outcome.degraded then redis.call('HINCRBY', COUNTS_KEY, 'groups_degraded', tonumber(outcome.degraded)) end
drop(content)
return 'published'
