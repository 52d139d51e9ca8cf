"""Programs as bytes: numbers, repeated sequences, rows, and the command stream made of them (PROG-3)."""
