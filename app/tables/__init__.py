"""Parameter tables for shapes: made when they are asked for, cached, made better in the background (SHAPE-7)."""
