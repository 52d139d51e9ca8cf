-- The bytes that an owner has, as they count for the limit.
-- ARGV: keep_ms, owner
return string.format('%.0f', stored_bytes(ARGV[2]))
