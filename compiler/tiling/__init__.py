"""Group to frustums: projection, sizes, and the choice of a tiling."""
