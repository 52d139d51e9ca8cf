-- Prolongs a lease, reports memory and time, and says whether to go on: keep, stop (no job waits) or lost (fence closed).
-- A limit fails the job that set it; the computation goes on for the others. `elapsed_ms` is measured by the worker.
-- Returns the answer, the tightest memory limit and the time until the first time limit is reached (0: unknown).
-- ARGV: keep_ms, content, fence, memory_bytes, elapsed_ms
local content, memory, elapsed = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local key, now = computation_key(content), now_ms()
local v = redis.call('HMGET', key, 'state', 'fence')
if v[2] ~= ARGV[3] or (v[1] ~= 'running' and v[1] ~= 'stopping') then return { 'lost', '0', 0 } end
local tightest, soonest = 0, 0
if v[1] == 'running' then
  redis.call('HSET', key, 'elapsed_ms', elapsed)
  tightest, soonest = enforce_limits(content, memory, elapsed, now)
end
if redis.call('HGET', key, 'state') ~= 'running' then return { 'stop', '0', 0 } end -- the lease is left to run out
beat(content)
return { 'keep', string.format('%.0f', tightest), soonest }
