"""Tessera's compiler: ONNX model and hardware profile in, fusion plan out. Knows no HTTP, no queue, no storage."""
