"""Malformed and hostile model files, and the verdict that each is owed (IMPORT-4): `python -m tests.corpus`."""
