-- Counts an answer, and the shape that was asked for.
-- ARGV: package, shape, shapes kept, ms to keep them, how often the shape was asked for, then pairs of what to count and how often
-- Of more shapes than are kept the rarest gives way to a new one, which takes over its count (space saving): a shape
-- that is asked for often enough cannot be missed, and no count is too low.
local totals, counts = 'tessera:table-counts', 'tessera:package:' .. ARGV[1] .. ':counts'
local shapes = 'tessera:package:' .. ARGV[1] .. ':shapes'
for place = 6, #ARGV, 2 do
  redis.call('HINCRBY', totals, ARGV[place], ARGV[place + 1])
  redis.call('HINCRBY', counts, ARGV[place], ARGV[place + 1])
end
if ARGV[2] ~= '' then
  if redis.call('ZSCORE', shapes, ARGV[2]) or redis.call('ZCARD', shapes) < tonumber(ARGV[3]) then
    redis.call('ZINCRBY', shapes, ARGV[5], ARGV[2])
  else
    local rarest = redis.call('ZPOPMIN', shapes)
    redis.call('ZADD', shapes, rarest[2] + ARGV[5], ARGV[2])
  end
  redis.call('PEXPIRE', shapes, ARGV[4])
end
redis.call('PEXPIRE', counts, ARGV[4])
