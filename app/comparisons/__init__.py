"""Comparisons: two compilations side by side (API-3)."""
