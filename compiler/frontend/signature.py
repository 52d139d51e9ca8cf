"""Signatures of the ONNX operator sets: number of inputs, attributes and types; checked once per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import onnx
from onnx.defs import OpSchema

from compiler.errors import ModelError, printable
from compiler.frontend.constant_values import onnx_type
from compiler.ir.graph import Tensor

_MANY: Final = 2**31 - 1
KNOWN_DOMAINS: Final = ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")

# What ONNX Runtime has in the standard's domain at every opset: as which of the standard's operators, at an opset that
# has these. Its optimiser writes them into models of any opset.
_ADDED: Final = MappingProxyType(
    {"LayerNormalization": ("LayerNormalization", 17), "SimplifiedLayerNormalization": ("RMSNormalization", 23)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formal:
    """One formal input: its type variable or type, the allowed types, and whether it is optional."""

    variable: str
    allowed: frozenset[str]
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An operator at one opset version; `variadic` says that the last input may repeat.

    `deprecated`: withdrawn without a successor of the same name. A version replaced under its own name keeps its
    meaning, and ONNX Runtime runs it (GroupNormalization with a scale per group, opset 18 to 20).
    """

    op_type: str
    since: int
    deprecated: bool
    inputs: tuple[Formal, ...]
    variadic: bool
    homogeneous: bool
    input_count: tuple[int, int]
    output_count: tuple[int, int]
    attributes: Mapping[str, tuple[int, bool]]
    schema: OpSchema

    def formal(self, position: int) -> Formal | None:
        """The formal input at a position."""
        if position < len(self.inputs):
            return self.inputs[position]
        return self.inputs[-1] if self.variadic and self.inputs else None


class Signatures:
    """The signatures that one model needs, each looked up once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], Signature | None] = {}

    def find(self, op_type: str, domain: str, version: int) -> Signature | None:
        """The operator as of `version` of its domain; None if there is none."""
        key = (op_type, domain, version)
        if key not in self._known:
            try:
                self._known[key] = _signature(onnx.defs.get_schema(op_type, version, domain))
            except onnx.defs.SchemaError:
                self._known[key] = None
        return self._known[key]

    def standard_form(self, node: onnx.NodeProto, version: int) -> tuple[onnx.NodeProto, int]:
        """A node that ONNX Runtime adds to the standard's domain as the standard's operator, with its opset.

        Any other node as it is, with `version`; also one with outputs that the standard's operator does not have.
        """
        added = _ADDED.get(node.op_type)
        if added is None or node.domain not in ("", "ai.onnx") or self.find(node.op_type, "", version) is not None:
            return node, version
        signature = self.find(added[0], "", added[1])
        if signature is None or len(node.output) > signature.output_count[1]:
            return node, version
        renamed = onnx.NodeProto()
        renamed.CopyFrom(node)
        renamed.op_type = added[0]
        return renamed, added[1]


def _signature(schema: OpSchema) -> Signature:
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    option = OpSchema.FormalParameterOption
    formals = tuple(
        Formal(
            variable=formal.type_str,
            allowed=allowed.get(formal.type_str) or frozenset(formal.types),
            optional=formal.option != option.Single,
        )
        for formal in schema.inputs
    )
    last = schema.inputs[-1] if schema.inputs else None
    return Signature(
        op_type=schema.name,
        since=schema.since_version,
        deprecated=schema.deprecated and onnx.defs.get_schema(schema.name, schema.domain).deprecated,
        inputs=formals,
        variadic=last is not None and last.option == option.Variadic,
        homogeneous=last is None or last.is_homogeneous,
        input_count=(schema.min_input, min(schema.max_input, _MANY)),
        output_count=(schema.min_output, min(schema.max_output, _MANY)),
        attributes=MappingProxyType({n: (_type_code(a), a.required) for n, a in schema.attributes.items()}),
        schema=schema,
    )


def _type_code(attribute: Any) -> int:
    return int(attribute.type.value)


def check_node(node: onnx.NodeProto, name: str, signature: Signature | None, version: int) -> Signature:
    """The signature of a node; checks number and kind of its inputs, outputs and attributes.

    Raises ModelError naming the node. Attributes that refer to a function's own are checked at inlining.
    """

    def fail(message: str, *, code: str = "invalid_model", actual: object = None, limit: object = None) -> ModelError:
        return ModelError(
            message, code=code, stage="import", node=name, op_type=node.op_type, actual=actual, limit=limit
        )

    if signature is None or signature.deprecated:
        raise unknown_op(node, name, version, signature)
    low, high = signature.input_count
    if not low <= len(node.input) <= high:
        raise fail("the node has a wrong number of inputs", actual=len(node.input), limit=f"{low} to {high}")
    low, high = signature.output_count
    if not max(1, low) <= len(node.output) <= high or not any(node.output):
        raise fail("the node has a wrong number of outputs", actual=len(node.output), limit=f"{max(1, low)} to {high}")
    for position, value in enumerate(node.input):
        formal = signature.formal(position)
        if not value and formal is not None and not formal.optional:
            raise fail(f"input {position} is missing", code="missing_input", actual="''", limit="a value")
    seen: set[str] = set()
    for attribute in node.attribute:
        if attribute.name in seen:
            raise fail(
                f"attribute {attribute.name!r} is given twice", code="duplicate_attribute", actual=attribute.name
            )
        seen.add(attribute.name)
        expected = signature.attributes.get(attribute.name)
        if expected is None:
            raise fail(
                f"attribute {attribute.name!r} is not known",
                actual=attribute.name,
                limit=", ".join(sorted(signature.attributes)) or "no attributes",
            )
        if attribute.type != expected[0] and not attribute.ref_attr_name:
            kinds = onnx.AttributeProto.AttributeType
            known = attribute.type in kinds.values()
            raise fail(
                f"attribute {attribute.name!r} has a wrong type",
                actual=kinds.Name(attribute.type) if known else attribute.type,
                limit=kinds.Name(expected[0]),
            )
    for wanted, (_, required) in signature.attributes.items():
        if required and wanted not in seen:
            raise fail(f"attribute {wanted!r} is missing", actual="absent", limit=f"attribute {wanted}")
    return signature


def is_foreign(node: onnx.NodeProto) -> bool:
    """Whether a node's domain is unknown to ONNX, or ONNX Runtime adds it to the standard's."""
    return node.domain not in (*KNOWN_DOMAINS, "ai.onnx") or node.op_type in _ADDED


def unknown_op(node: onnx.NodeProto, name: str, version: int, signature: Signature | None) -> ModelError:
    """The error for an operator missing in this opset; it names the opset that has it, if any."""
    domain = node.domain
    since = _first_version(node.op_type, "" if domain == "ai.onnx" else domain, version)
    if signature is not None and signature.deprecated:
        hint = f"It was withdrawn in opset {signature.since}; export with its successor"
    elif since is not None:
        hint = f"It exists from opset {since} on"
    else:
        hint = "Check the op's name and domain"
    return ModelError(
        f"there is no op {printable(node.op_type, 80)!r} in opset {version}",
        code="unknown_op",
        stage="import",
        node=name,
        op_type=node.op_type,
        actual=f"opset {version}",
        limit=f"opset {since} or later" if since is not None else "an op of the opset",
        hint=hint,
    )


def _first_version(op_type: str, domain: str, after: int) -> int | None:
    """The first version of the operator set after `after` that has the operator."""
    for version in range(after + 1, onnx.defs.onnx_opset_version() + 1):
        try:
            if not onnx.defs.get_schema(op_type, version, domain).deprecated:
                return version
        except onnx.defs.SchemaError:
            continue
    return None


def check_types(signature: Signature, name: str, tensors: Sequence[Tensor | None]) -> None:
    """Raises ModelError if an input's type is not allowed, or two inputs of one type variable differ."""
    bound: dict[str, tuple[str, int]] = {}
    for position, tensor in enumerate(tensors):
        formal = signature.formal(position)
        if tensor is None or formal is None or not tensor.dtype:
            continue
        kind = onnx_type(tensor.dtype)
        if formal.allowed and kind not in formal.allowed:
            raise ModelError(
                f"input {position} ({tensor.name!r}) has an element type that the op does not take",
                code="invalid_type",
                stage="import",
                node=name,
                op_type=signature.op_type,
                actual=kind,
                limit=", ".join(sorted(formal.allowed)),
            )
        if position >= len(signature.inputs) - 1 and signature.variadic and not signature.homogeneous:
            continue
        first = bound.setdefault(formal.variable, (kind, position))
        if first[0] != kind:
            raise ModelError(
                f"inputs {first[1]} and {position} ({tensor.name!r}) must have the same element type",
                code="invalid_type",
                stage="import",
                node=name,
                op_type=signature.op_type,
                actual=f"{first[0]} and {kind}",
                limit="equal types",
            )
