-- Counts an answer, and the shape that was asked for: of the package, whose shapes decide its buckets, and of the owner
-- who asked, who sees no others.
-- ARGV: package, owner ('' has the counts of all), shape, shapes kept, ms to keep them, how often the shape was
-- asked for, then pairs of what to count and how often
-- Of more shapes than are kept the rarest gives way to a new one, which takes over its count (space saving): a shape
-- that is asked for often enough cannot be missed, and no count is too low.
local function count(package)
  local counts, shapes = 'tessera:package:' .. package .. ':counts', 'tessera:package:' .. package .. ':shapes'
  for place = 7, #ARGV, 2 do redis.call('HINCRBY', counts, ARGV[place], ARGV[place + 1]) end
  if ARGV[3] ~= '' then
    if redis.call('ZSCORE', shapes, ARGV[3]) or redis.call('ZCARD', shapes) < tonumber(ARGV[4]) then
      redis.call('ZINCRBY', shapes, ARGV[6], ARGV[3])
    else
      local rarest = redis.call('ZPOPMIN', shapes)
      redis.call('ZADD', shapes, rarest[2] + ARGV[6], ARGV[3])
    end
    redis.call('PEXPIRE', shapes, ARGV[5])
  end
  redis.call('PEXPIRE', counts, ARGV[5])
end

for place = 7, #ARGV, 2 do redis.call('HINCRBY', 'tessera:table-counts', ARGV[place], ARGV[place + 1]) end
count(ARGV[1])
if ARGV[2] ~= '' then count(ARGV[1] .. ':' .. ARGV[2]) end
