"""ONNX's backend test suite, with Tessera as the backend."""
