"""Keys: who may use the service, what belongs to whom, and how much of it (docs/service.md)."""
