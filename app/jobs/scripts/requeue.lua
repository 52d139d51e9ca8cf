-- Celery's lists are emptied, and all that is queued is handed out again: by the same queue, or by the one of the present
-- store, whose id was lost. Returns how much is queued.
-- ARGV: keep_ms, store, queues (JSON: pairs of the name and the new name)
local now, count = now_ms(), 0
for _, names in ipairs(cjson.decode(ARGV[3])) do
  local before, queue = names[1], names[2]
  redis.call('DEL', before)
  for _, content in ipairs(redis.call('ZRANGE', queue_key(before), 0, -1)) do
    leave_queue(content)
    if before ~= queue then redis.call('HSET', computation_key(content), 'queue', queue, 'store', ARGV[2]) end
    enqueue(content, now)
    count = count + 1
  end
end
return count
