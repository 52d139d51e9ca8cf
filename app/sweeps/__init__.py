"""Sweeps: one model for many profiles, as a table and a Pareto front (SIM-5)."""
