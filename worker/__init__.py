"""Celery worker: loads a model, calls the compiler, stores the results (API-6)."""
