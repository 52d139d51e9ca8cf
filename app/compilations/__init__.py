"""Compilations: the request that makes a job (API-3)."""
