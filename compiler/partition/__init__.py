"""Graph to segments."""
