"""The small loader: runs a package with numpy and without the compiler (SHAPE-10)."""
