-- Accepts a sweep: its record and those of all its points, with all that a job has, all or nothing (SIM-5).
-- ARGV: keep_ms, request (of answered_before), fields of the sweep (of text), points (each a `wanted` of record_job); JSON
local request, fields, points = cjson.decode(ARGV[2]), cjson.decode(ARGV[3]), cjson.decode(ARGV[4])
local answer = answered_before(request)
if answer then return answer end
local sweep, now = request.job, now_ms()
redis.call('HSET', job_key(sweep), 'state', 'queued', 'created_ms', now, 'changed_ms', now, 'attempts', 0,
           'step', 0, 'total', #points, 'phase', 'points')
for name, value in pairs(fields) do redis.call('HSET', job_key(sweep), name, value) end
count_accepted('sweep', 'none')
redis.call('ZADD', jobs_key(fields.owner), now, sweep)
event(sweep)
for _, wanted in ipairs(points) do record_job(wanted, now) end
local final = not NEXT[redis.call('HGET', job_key(sweep), 'state')]
return { final and 'finished' or 'accepted', sweep }
