"""The closed-form cost of a tiling: bytes per level, cycles, energy."""
