"""Decoders of language models as the exporters of ONNX Runtime GenAI write them, with small random weights."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.models import Model

INT64: Final = TensorProto.INT64
HEADS, KV_HEADS, SIZE = 4, 2, 16
HIDDEN, INNER, WORDS, LONGEST = HEADS * SIZE, 96, 40, 32


class Decoder(Model):
    """Token ids, a mask and past keys and values in; logits and present ones out.

    `packs`: one product makes queries, keys and values, and attention turns them; else three do, and rotations stand
    before it. `bits`: of the weights of products and of the table of words; 0 for floats.
    """

    def __init__(self, layers: int = 2, *, packs: bool = True, bits: int = 0, **attention: Any) -> None:
        super().__init__(opset=21, ir_version=10, name="decoder")
        self.packs, self.bits, self.attention = packs, bits, attention
        ids = self.input(["batch_size", "sequence_length"], "input_ids", INT64)
        mask = self.input(["batch_size", "total_sequence_length"], "attention_mask", INT64)
        self.positions = "" if packs else self.input(["batch_size", "sequence_length"], "position_ids", INT64)
        turns = self.random.uniform(0, 6, (LONGEST, SIZE // 2))
        self.tables = [self.constant(f(turns), dtype=np.float32) for f in (np.cos, np.sin)]
        counted = self.node("Sub", [self.node("ReduceSum", [mask, self.ints(1)], keepdims=1), self.ints(1)])
        length = self.node("Gather", [self.node("Shape", [mask]), self.constant(1, dtype=np.int64)], axis=0)
        self.lengths = [self.node("Cast", [value], to=TensorProto.INT32) for value in (counted, length)]
        skipped = self.words(ids)
        root = self.node("SimplifiedLayerNormalization", [skipped, self.scale()], axis=-1, epsilon=1e-5, stash_type=1)
        for layer in range(layers):
            made = self.product(self.attended(root, layer), HIDDEN, HIDDEN)
            root, skipped = self.skipping(skipped, made, is_last=False)
            gate, up = self.product(root, HIDDEN, INNER), self.product(root, HIDDEN, INNER)
            gate = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
            made = self.product(self.node("Mul", [gate, up]), INNER, HIDDEN)
            root, skipped = self.skipping(skipped, made, is_last=layer == layers - 1)
        self.node("MatMul", [root, self.matrix(HIDDEN, WORDS)], out="logits")
        self.outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, None))

    def proto(self) -> onnx.ModelProto:
        """The finished model."""
        proto = super().proto()
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return proto

    def scale(self) -> str:
        """Factors of a normalisation."""
        return self.constant(self.random.uniform(0.5, 1.5, HIDDEN), dtype=np.float32)

    def matrix(self, rows: int, columns: int) -> str:
        """A factor of a product."""
        return self.constant(self.random.standard_normal((rows, columns)) / rows**0.5, dtype=np.float32)

    def words(self, ids: str) -> str:
        """The rows of the table of words."""
        if not self.bits:
            return self.node("Gather", [self.weight(WORDS, HIDDEN), ids], axis=0)
        data = self.random.integers(0, 256, (WORDS, HIDDEN * self.bits // 8), dtype=np.uint8)
        scales = self.random.uniform(0.01, 0.1, (WORDS, HIDDEN // 32))
        inputs = [self.constant(data), ids, self.constant(scales, dtype=np.float32)]
        attributes: dict[str, Any] = {"bits": self.bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
        return self.node("GatherBlockQuantized", inputs, domain="com.microsoft", **attributes)

    def product(self, data: str, rows: int, columns: int) -> str:
        """A product by a weight."""
        if not self.bits:
            return self.node("MatMul", [data, self.matrix(rows, columns)])
        packed = self.random.integers(0, 256, (columns, rows // 32, 4 * self.bits), dtype=np.uint8)
        scales = self.random.uniform(0.2, 1, (columns, rows // 32)) / 2**self.bits
        inputs = [data, self.constant(packed), self.constant(scales, dtype=np.float32)]
        attributes: dict[str, Any] = {"K": rows, "N": columns, "bits": self.bits, "block_size": 32}
        return self.node("MatMulNBits", inputs, domain="com.microsoft", **attributes)

    def skipping(self, skipped: str, made: str, *, is_last: bool) -> tuple[str, str]:
        """The normalised sum and the sum, which nobody reads behind the last layer."""
        names = [self.fresh("normal"), "", "", self.fresh("sum")][: 1 if is_last else 4]
        operands = [skipped, made, self.scale()]
        kind = "SkipSimplifiedLayerNormalization"
        self.nodes.append(helper.make_node(kind, operands, names, domain="com.microsoft", epsilon=1e-5))
        return names[0], names[-1]

    def attended(self, root: str, layer: int) -> str:
        """Attention over this call's tokens and past ones."""
        kinds = ("key", "value")
        shape: list[int | str | None] = ["batch_size", KV_HEADS, "past_sequence_length", SIZE]
        past = [self.input(shape, f"past_key_values.{layer}.{kind}") for kind in kinds]
        present = [f"present.{layer}.{kind}" for kind in kinds]
        if self.packs:
            data = [self.product(root, HIDDEN, (HEADS + 2 * KV_HEADS) * SIZE), "", ""]
            attributes: dict[str, Any] = {"do_rotary": 1, "rotary_interleaved": 0}
            tables = self.tables
        else:
            data = [self.product(root, HIDDEN, heads * SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS)]
            for number in range(2):
                turned = [data[number], self.positions, *self.tables]
                data[number] = self.node("RotaryEmbedding", turned, domain="com.microsoft", interleaved=0)
            attributes, tables = {"do_rotary": 0, "rotary_interleaved": 0}, ["", ""]
        attributes |= {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "local_window_size": -1, "scale": SIZE**-0.5}
        inputs = [*data, *past, *self.lengths, *tables, "", ""]
        out = self.fresh("attended")
        node = helper.make_node(
            "GroupQueryAttention", inputs, [out, *present], domain="com.microsoft", **(attributes | self.attention)
        )
        self.nodes.append(node)
        self.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in present]
        return out
