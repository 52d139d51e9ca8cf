"""Jobs and computations (API-5): their records in Redis, the relay to the workers, the endpoints."""
