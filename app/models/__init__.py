"""Models: uploaded ONNX files, known by the SHA-256 of their bytes (API-3)."""
