"""The small loader: runs a package with numpy and nothing of the compiler (SHAPE-10)."""
