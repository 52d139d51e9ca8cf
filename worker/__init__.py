"""Celery worker: loads a model, calls the compiler, stores what it answers (API-6)."""
