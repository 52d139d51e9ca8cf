-- Hands out the deliveries that are due. An entry stays until a worker takes the lease, so a message that is
-- lost on the way is sent again; one that arrives twice finds the lease taken.
-- A queue whose list is full gets no more for now, so resending cannot fill the memory while workers are away.
-- ARGV: keep_ms, count, first_resend_ms, last_resend_ms, room in each queue's list (JSON object of counts)
local now, sends = now_ms(), {}
local room = cjson.decode(ARGV[5])
-- An entry that is due later than the longest wait from now was written before the clock was set back.
local early = redis.call('ZRANGEBYSCORE', OUTBOX_KEY, '(' .. now + tonumber(ARGV[4]), '+inf', 'LIMIT', 0, tonumber(ARGV[2]))
for _, content in ipairs(early) do redis.call('ZADD', OUTBOX_KEY, now, content) end
local due = redis.call('ZRANGEBYSCORE', OUTBOX_KEY, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
for _, content in ipairs(due) do
  local key = computation_key(content)
  local v = redis.call('HMGET', key, 'state', 'fence', 'queue')
  if v[1] == 'queued' and (room[v[3]] or 0) <= 0 then
    redis.call('ZADD', OUTBOX_KEY, now + tonumber(ARGV[3]), content)
  elseif v[1] == 'queued' then
    room[v[3]] = room[v[3]] - 1
    local sent = redis.call('HINCRBY', key, 'sends', 1)
    local wait = math.min(tonumber(ARGV[3]) * 2 ^ (sent - 1), tonumber(ARGV[4]))
    redis.call('ZADD', OUTBOX_KEY, now + wait, content)
    table.insert(sends, { content, v[2], v[3] })
  else
    redis.call('ZREM', OUTBOX_KEY, content)
  end
end
return sends
