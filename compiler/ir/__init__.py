"""The compiler's own representation: geometry, graph, and one verifier per stage."""
