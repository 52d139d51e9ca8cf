-- An upload is about to move its file into place: a deletion of the same model must not come between.
-- ARGV: keep_ms, model, pin_ms
local model = ARGV[2]
if redis.call('EXISTS', deleting_key(model)) == 1 then return 'deleting' end
redis.call('INCR', pinned_key(model))
redis.call('PEXPIRE', pinned_key(model), ARGV[3])
return 'pinned'
