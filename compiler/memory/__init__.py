"""Memory allocation: addresses for buffers with known lifetimes."""
