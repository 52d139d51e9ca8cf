"""Address tables: where a unit finds the operands of a window or a product in its buffers (ADDR-1 to ADDR-5)."""
