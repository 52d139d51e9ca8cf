-- Lets blobs be removed until the mark ends, but for those that are pinned or being removed; returns which.
-- ARGV: keep_ms, mark_ms, digests...
local claimed = {}
for number = 3, #ARGV do
  local digest = ARGV[number]
  if redis.call('EXISTS', pinned_key(digest), uploading_key(digest)) == 0
      and redis.call('SET', removing_key(digest), 1, 'NX', 'PX', ARGV[2]) then
    table.insert(claimed, digest)
  end
end
return claimed
