-- Hands out deliveries to the queues that live workers serve, one owner after the other. Celery's list is first in,
-- first out, so it is kept short: what is in it already goes before an owner who comes now.
-- What no worker took up in time may have been lost on the way and goes back to its line; what arrives twice finds the
-- lease taken. Processes of versions before 0.12 lease and drop computations and know no lines, so it may be gone.
-- ARGV: keep_ms, ttl_s (of a sign of life), messages_per_slot, first_resend_ms, last_resend_ms
local now, sends = now_ms(), {}
local per_slot, first, last = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function take_back_lost(queue)
  local lost = redis.call('ZRANGEBYSCORE', sent_key(queue), '-inf', now)
  -- due later than any wait from now: written before the clock was set back
  local early = redis.call('ZRANGEBYSCORE', sent_key(queue), '(' .. now + last, '+inf')
  for _, content in ipairs(early) do table.insert(lost, content) end
  for _, content in ipairs(lost) do
    redis.call('ZREM', sent_key(queue), content)
    if redis.call('HGET', computation_key(content), 'state') == 'queued' then line_up(content) end
  end
end

local function hand_out(queue, owner)
  local content = redis.call('ZRANGE', line_key(queue, owner), 0, 0)[1]
  local key, turn = computation_key(content), redis.call('INCR', TURN_KEY)
  leave_line(content, queue, owner)
  if redis.call('HGET', key, 'state') ~= 'queued' then return 0 end
  local sent = redis.call('HINCRBY', key, 'sends', 1)
  redis.call('HSET', key, 'turn', turn)
  redis.call('ZADD', sent_key(queue), now + math.min(first * 2 ^ (sent - 1), last), content)
  redis.call('ZADD', turns_key(queue), 'XX', turn, owner)
  table.insert(sends, { content, redis.call('HGET', key, 'fence'), queue })
  return 1
end

local slots, queues = slots_by_queue(now, ARGV[2]), redis.call('SMEMBERS', QUEUES_KEY)
table.sort(queues)
for _, queue in ipairs(queues) do
  local room = slots[queue] and per_slot * slots[queue] - redis.call('LLEN', queue) or 0
  if room > 0 then take_back_lost(queue) end
  while room > 0 do
    local owner = redis.call('ZRANGE', turns_key(queue), 0, 0)[1]
    if not owner then break end
    room = room - hand_out(queue, owner)
  end
end
return sends
