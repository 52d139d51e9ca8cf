"""The command line `tessera` (UI-1)."""
