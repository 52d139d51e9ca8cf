"""Judges quantised networks (IMPORT-9); shares no code with compiler/.

- reference.py (and sums.py): an exact interpreter of QDQ, QLinear and Integer models
- graphs.py (and builder.py): small random quantised graphs with inputs, by seed
- models.py, four_bits.py: real networks by ONNX Runtime's quantisers
- runtime.py: ONNX Runtime without its fusions, the second judge, and where its integer kernels saturate

Of a deep network compare each rounding node for the operands it had (`run_from`): one step, where two right
implementations round differently, grows to dozens of steps in later layers.
"""
