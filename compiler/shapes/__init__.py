"""Shape units, parameter tables, buckets and packages: any shape without compiling (SHAPE-1 to SHAPE-11)."""
