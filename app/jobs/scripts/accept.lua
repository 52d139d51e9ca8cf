-- Accepts a job: its record, and the computation it waits for, queued, all or nothing (API-5).
-- ARGV: keep_ms, request (of answered_before), wanted (of record_job); JSON objects
local request, wanted = cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local answer = answered_before(request)
if answer then return answer end
return { record_job(wanted, now_ms()), wanted.job }
