"""Benchmarks, run on demand by `make bench`; they print, they assert nothing."""
