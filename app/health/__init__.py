"""Liveness, readiness and metrics (API-3, API-8)."""
