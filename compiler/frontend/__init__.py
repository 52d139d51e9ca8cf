"""Model file to graph: read with limits, lower (infer, fold), normalise."""
