"""Simulations: running an executable on given or made-up inputs (API-3, SIM-1)."""
