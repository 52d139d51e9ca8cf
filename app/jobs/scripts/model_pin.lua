-- An upload is about to move its file into place: a deletion of the same model must not come between.
-- ARGV: keep_ms, model, pin_ms
local key = model_key(ARGV[2])
if redis.call('EXISTS', key .. ':deleting') == 1 then return 'deleting' end
redis.call('INCR', key .. ':pinned')
redis.call('PEXPIRE', key .. ':pinned', ARGV[3])
return 'pinned'
