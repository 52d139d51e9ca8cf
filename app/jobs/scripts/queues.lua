-- What waits in which queue, and who is there for it: for each queue its name, the number of computations, how many
-- live workers would do at once, and whether an API process of its identity lives.
-- ARGV: keep_ms, ttl_s (of a sign of life), names of queues to list though they are empty (JSON)
local now, found = now_ms(), {}
local slots, names = slots_by_queue(now, ARGV[2]), {}
for _, queue in ipairs(cjson.decode(ARGV[3])) do names[queue] = true end
for _, queue in ipairs(redis.call('SMEMBERS', QUEUES_KEY)) do names[queue] = true end
for queue in pairs(names) do
  local until_s = tonumber(redis.call('ZSCORE', APIS_KEY, queue:match('@(.*)$') or '') or 0)
  local has_api = until_s * 1000 >= now and until_s * 1000 <= now + ARGV[2] * 1000
  table.insert(found, { queue, redis.call('ZCARD', queue_key(queue)), slots[queue] or 0, has_api and 1 or 0 })
end
table.sort(found, function(a, b) return a[1] < b[1] end)
return found
