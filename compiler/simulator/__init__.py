"""Runs compiled programs with real values, address for address, and compares the values (SIM-1)."""
