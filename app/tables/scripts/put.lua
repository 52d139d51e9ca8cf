-- Stores tables, each in one step and never a simple one over an optimised one, and gives locks back (SHAPE-7).
-- KEYS: of each table its value and its lock
-- ARGV: ms to keep them, token of the locks, then of each table the value and what the writer took for damaged ('' if
-- nothing was there)
-- A value begins with two bytes of its form and one that tells its kind.
local function is_optimised(value, form) return value and string.sub(value, 1, 3) == form .. 'o' end

for place = 1, #KEYS, 2 do
  local value, damaged = ARGV[place + 2], ARGV[place + 3]
  local present, form = redis.call('GET', KEYS[place]), string.sub(value, 1, 2)
  if is_optimised(value, form) or not is_optimised(present, form) or present == damaged then
    redis.call('SET', KEYS[place], value, 'PX', ARGV[1])
  end
  if redis.call('GET', KEYS[place + 1]) == ARGV[2] then redis.call('DEL', KEYS[place + 1]) end
end
