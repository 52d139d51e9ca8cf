-- A blob is about to be written or referred to: its removal must not come between.
-- ARGV: keep_ms, digest, pin_ms
if redis.call('EXISTS', removing_key(ARGV[2])) == 1 then return 'removing' end
pin(pinned_key(ARGV[2]), ARGV[3])
return 'pinned'
