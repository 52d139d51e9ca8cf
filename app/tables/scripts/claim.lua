-- Locks tables for a caller who will make them, and reads them: another caller may have made one between the caller's
-- look and its lock.
-- KEYS: of n tables first their locks, then their values, then the locks of their optimisation; ARGV: token, ms
-- Returns whether each lock was got, and the values of all other keys.
local count, locks = #KEYS / 3, {}
for place = 1, count do locks[place] = redis.call('SET', KEYS[place], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0 end
return {locks, redis.call('MGET', unpack(KEYS, count + 1))}
