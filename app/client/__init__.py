"""A typed client of the HTTP interface (UI-2)."""
