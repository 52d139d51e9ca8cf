"""Quantises float models with ONNX Runtime's quantiser, and compares them with the float models.

In: a model file and the arrays of an .npz file. Out: an ONNX file with QuantizeLinear and DequantizeLinear around its
ops, and a report. The quantiser runs in a process of its own (process.py), so that nothing it does ends this one.
"""
