"""Parameter tables for shapes: made on request, cached, optimised in the background (SHAPE-7)."""
