"""Simulations: runs of an executable on given or generated inputs (API-3, SIM-1)."""
