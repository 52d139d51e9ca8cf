-- Stores tables, each in one step and never a simple one over an optimised one, and gives locks back (SHAPE-7).
-- KEYS: of each table its value, its lock and the lock of its optimisation
-- ARGV: ms to keep them, token of the locks, ms of requests for optimised tables, then of each table the value, what the
-- writer took for damaged ('' if nothing was there), and how to mark its optimisation as requested ('': it is final)
-- A value begins with two bytes of its form and one that tells its kind. Returns for each table whether this requested
-- its optimisation.
local function is_optimised(value, form) return value and string.sub(value, 1, 3) == form .. 'o' end

local requested = {}
for table = 1, #KEYS / 3 do
  local key, lock, optimise = KEYS[3 * table - 2], KEYS[3 * table - 1], KEYS[3 * table]
  local value, damaged, mark = ARGV[3 * table + 1], ARGV[3 * table + 2], ARGV[3 * table + 3]
  local present, form = redis.call('GET', key), string.sub(value, 1, 2)
  if is_optimised(value, form) or not is_optimised(present, form) or present == damaged then
    redis.call('SET', key, value, 'PX', ARGV[1])
  end
  if redis.call('GET', lock) == ARGV[2] then redis.call('DEL', lock) end
  requested[table] = mark ~= '' and redis.call('SET', optimise, mark, 'NX', 'PX', ARGV[3]) and 1 or 0
end
return requested
