"""Lowering: ONNX nodes, in order, to ops of the IR; shapes are inferred and constants folded on the way.

Shapes and the values that they are computed from need each other (Reshape), so both are found in one walk. A node is
evaluated, else replaced by other nodes, else run on the accelerator, else left to the host (IMPORT-2, IMPORT-6).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.degraded import Degradations
from compiler.errors import ModelError, TesseraError
from compiler.frontend.constant_values import derive, literal
from compiler.frontend.contributed import contributed, dequantised_in_eight_bits
from compiler.frontend.decompose import DECOMPOSED, decompose, why_not_decomposed
from compiler.frontend.decompose.classical import classical_nodes
from compiler.frontend.decompose.merge_axes import narrow, too_wide
from compiler.frontend.double_detours import without_detour
from compiler.frontend.fixed_extents import attribute_symbols, fixed_shape, fixed_value, has_dropped, settled
from compiler.frontend.fold import (
    FOLD_ELEMENTS,
    Folded,
    bounded,
    compile_time,
    evaluated_node,
    keeps_quantised,
    literal_of,
    may_describe,
    symbolic_result,
    unknown_extents,
    with_symbols,
)
from compiler.frontend.host import HostResult, check_held
from compiler.frontend.host_nodes import HostNodes
from compiler.frontend.inline_functions import (
    FunctionTable,
    all_nodes,
    has_function,
    instantiate,
    schema_function,
    with_defaults,
)
from compiler.frontend.lowering_errors import at_extents, malformed, not_strict, too_many_nodes, unless, unmade_output
from compiler.frontend.node_attributes import node_names
from compiler.frontend.read import OnnxModel, function_opsets, plain_domain
from compiler.frontend.sequences import Sequences
from compiler.frontend.signature import Signature, Signatures, check_types, is_foreign, unknown_op
from compiler.frontend.tensor_table import ValueTable
from compiler.frontend.unrolled import NO_ROOM, ControlFlow
from compiler.frontend.varying_constants import can_be_computed, form_is_at_maxima, is_at_maxima, varies, why_at_maxima
from compiler.ir.constant import Constant, Literal, Opaque, Splat
from compiler.ir.graph import HOST, MAX_AXES, Graph, Op, Tensor
from compiler.ir.symbol import Expression, symbols_of
from compiler.ops import ALL_KINDS, OP_KINDS
from compiler.ops.base import Call, Inferred, OpClass
from compiler.ops.movement import slices_of_split, without_empty
from compiler.units import DTYPE_NAMES

# A bound above the depth that calls (functions.MAX_CALL_DEPTH) and known branches (validate.MAX_NESTING) can reach.
MAX_EXPANSION_DEPTH: Final = 128
# Largest number of nodes lowered in total, expansions included.
MAX_LOWERED: Final = 400_000
# Bytes of constants of what replaces nodes: 16 transforms of 1,024 points take these, each by a node of 100 bytes.
MAX_MADE_BYTES: Final = 1 << 28
CONTROL_FLOW: Final = frozenset(("If", "Loop", "Scan", "SequenceMap"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerModel:
    """Pass: protobuf structure to graph (IMPORT-2).

    `dims` maps dynamic dimensions to their maximum, `minima` to their minimum (default 1); those in `plain` do not
    vary, `tied` ones are said by others. `strict` makes an op on the host an error; `degradations` leave nodes to it.
    """

    name: str = "lower"
    dims: Mapping[str, int] = field(default_factory=dict)
    minima: Mapping[str, int] = field(default_factory=dict)
    plain: Collection[str] = frozenset()
    tied: Mapping[str, Expression] = field(default_factory=dict)
    strict: bool = False
    degradations: Degradations = field(default_factory=Degradations, repr=False)

    def run(self, model: OnnxModel) -> Graph:
        """Raises ModelError naming the node if it cannot be lowered."""
        lowering, scope = _Lowering(model, self), Scope(opsets=model.opsets)
        with at_extents(self.dims):
            for name, node in zip(lowering.names, model.proto.graph.node, strict=True):
                lowering.node(node, name, scope)
            graph = lowering.finish()
        if self.strict and graph.host:
            raise not_strict(graph)
        return graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The context of a node: its opset versions, and its depth in expansions."""

    opsets: Mapping[str, int]
    depth: int = 0

    def version(self, domain: str) -> int:
        """The opset version of a domain."""
        return self.opsets.get(domain, 1)


class _Lowering:
    """The state of one walk over one model; lives as long as the walk."""

    def __init__(self, model: OnnxModel, asked: LowerModel) -> None:
        self.model = model
        self.table = ValueTable(model, asked.dims, asked.minima, asked.plain, asked.tied)
        self.functions, self.signatures = FunctionTable.of_model(model.proto), Signatures()
        self.ops: list[Op] = []
        self.made_by: dict[str, int] = {}
        self.host = HostNodes(self.table, self.functions)
        self.sequences, self.flow = Sequences(), ControlFlow()
        self.inlined: set[str] = set()  # nodes that were replaced by nodes with names of their own
        self.order: dict[str, int] = {}
        self.lowered = self.made_bytes = 0
        self.left_to_host = asked.degradations.nodes
        graph = model.proto.graph
        self.names = node_names(graph)
        self.used = {name for node in all_nodes(graph.node) for name in node.input} | {v.name for v in graph.output}
        self.taken = dict.fromkeys(self.used, 0) | {name: 0 for node in all_nodes(graph.node) for name in node.output}

    def fresh(self, hint: str) -> str:
        """A new, unused value name; `taken` has the last number that was put behind each."""
        name = hint
        while name in self.taken:
            self.taken[hint] += 1
            name = f"{hint}.{self.taken[hint]}"
        self.taken[name] = 0
        return name

    # The walk -------------------------------------------------------------------------------------------------------

    def node(self, node: onnx.NodeProto, name: str, scope: Scope) -> None:
        """Lowers one node, called `name` in the model; errors name the node."""
        self.order.setdefault(name, len(self.order))
        self.lowered += 1
        if self.lowered > MAX_LOWERED or scope.depth > MAX_EXPANSION_DEPTH:
            raise too_many_nodes(node, name, MAX_LOWERED, MAX_EXPANSION_DEPTH)
        try:
            self._node(node, name, scope)
        except TesseraError as error:
            if error.node is None:
                error.node, error.op_type = name, node.op_type
            raise

    def _nodes(self, nodes: Sequence[onnx.NodeProto], name: str, scope: Scope, *, inner_names: bool) -> None:
        self.used.update(value for node in all_nodes(nodes) for value in node.input)
        self.taken.update((made, 0) for node in all_nodes(nodes) for made in node.output if made not in self.taken)
        if inner_names and nodes:
            self.inlined.add(name)
        for node in nodes:
            self.node(node, node.name if inner_names else name, scope)

    def _node(self, node: onnx.NodeProto, name: str, scope: Scope) -> None:
        function = self.functions.find(node)
        if function is not None:
            inner = Scope(opsets=function_opsets(function, self.model.opsets), depth=scope.depth + 1)
            self._nodes(instantiate(function, node, name, self.fresh), name, inner, inner_names=True)
            return
        domain = plain_domain(node.domain)
        node, version = self.signatures.standard_form(node, scope.version(domain))
        if version != scope.version(domain):
            scope = replace(scope, opsets={**scope.opsets, domain: version})
        signature = self.signatures.find(node.op_type, domain, version)
        if signature is None and is_foreign(node):
            limit = "" if name in self.left_to_host else self._contributed(node, name, scope)
            if limit is not None:
                self._on_host(node, name, scope, *self.host.foreign(node, scope.opsets, limit))
            return
        if signature is None or signature.deprecated:
            raise unknown_op(node, name, version, signature)
        call = dequantised_in_eight_bits(self.table.call(node, name, version), self.fresh)
        call = without_detour(call, self.made_by, self.ops, self.host.nodes, self.table.tensors)
        reason = self._on_chip(node, name, call, signature, scope)
        if reason is not None:
            results = self.host.results(node, name, signature, scope.opsets)
            self._on_host(node, name, scope, reason, results)

    def _on_chip(self, node: onnx.NodeProto, name: str, call: Call, signature: Signature, scope: Scope) -> str | None:
        """Lowers the node without the host; returns None on success, else the reason for the host.

        If a definition rejects a node or fails on it, the host runs the node if ONNX Runtime accepts it (IMPORT-7).
        """
        objection: TesseraError
        try:
            check_types(signature, name, call.inputs)
            if self._known_body(node, name, call, scope):
                return None
            if name in self.left_to_host:
                return "the compiler computed other values than ONNX Runtime (see degraded)"
            domain = plain_domain(node.domain)
            reason = self._native(node, name, call, scope) if not domain else f"domain {domain} runs on the host"
            return None if reason is None or self._expanded(node, name, call, signature, scope) else reason
        except ModelError as error:
            objection = error
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            objection = malformed(node, name, error)
        if not self.host.is_legal(node, name, signature, scope.opsets):
            raise objection
        return f"the compiler does not handle this form of the op: {objection.message}"

    def _contributed(self, node: onnx.NodeProto, name: str, scope: Scope) -> str | None:
        """Lowers an operator that ONNX Runtime adds to the standard; None on success, else why, "" if unknown."""
        found = contributed(node, name, self.table, self.fresh, scope.version(""))
        if isinstance(found, str):
            return found
        if isinstance(found, list):
            self._nodes(found, name, replace(scope, depth=scope.depth + 1), inner_names=False)
            return None
        return None if self._append(*found, node.output[0], name) else ""

    def _known_body(self, node: onnx.NodeProto, name: str, call: Call, scope: Scope) -> bool:
        """Replaces control flow whose way is known, and reads of known sequences, by other nodes; True if it did."""
        flows, known = node.op_type in CONTROL_FLOW, (node, call, self.fresh)
        body = self.flow.nodes(*known, name, self.table) if flows else self.sequences.nodes(*known)
        self._nodes(body or (), name, replace(scope, depth=scope.depth + 1), inner_names=flows)
        return body is not None

    def _native(self, node: onnx.NodeProto, name: str, call: Call, scope: Scope) -> str | None:
        """Evaluates the node, replaces it by other nodes, or appends its op; None on success, else the reason."""
        folded = compile_time(node, call, self.table.source.files) or self.table.floats.folded(node, call)
        if folded is not None:
            self.table.set_constant(node.output[0], folded)
            return None
        unknown = next((t for t in call.inputs if t is not None and not t.is_known), None)
        if unknown is not None:
            return self.table.why_unknown(unknown)
        if node.op_type in CONTROL_FLOW:
            return self.flow.why_on_host(name)
        if self._evaluated(node, call, scope):
            return None
        is_full = self.made_bytes > MAX_MADE_BYTES
        written = None if is_full else self.flow.within_room(decompose(node, call, self.fresh))
        replaced = written or narrow(node, call, self.fresh)
        if replaced is not None:
            self.made_bytes += replaced.constant_bytes
            for shape_name, extents in replaced.shapes.items():
                self.table.set_extents(shape_name, extents)
            self._nodes(replaced.nodes, name, replace(scope, depth=scope.depth + 1), inner_names=False)
            return None
        kind, wide = OP_KINDS.get(node.op_type), too_wide(call)
        if wide is not None and (kind is None or kind.op_class is not OpClass.VIEW):
            return f"a tensor has {wide} axes, and they do not merge into {MAX_AXES}"
        if node.op_type == "Split":
            return self._split(node, call)
        if kind is None:
            limit = why_not_decomposed(node, call)
            if limit is None and node.op_type in DECOMPOSED:
                full = f"constants that replace nodes of this model take more than {MAX_MADE_BYTES:,} bytes"
                return full if is_full else NO_ROOM
            return f"the accelerator has no {node.op_type}" if limit is None else unless(limit)
        if node.op_type == "Concat":
            call = without_empty(call)
        constants = all(t is None or t.constant is not None for t in call.inputs)
        # a conversion to a type that only the host supports is not evaluated either
        constants = constants and call.attributes.get("to", "bool") in DTYPE_NAMES
        refusal = kind.unsupported(call, any_dtype=constants)
        if refusal is not None:
            return unless(why_not_decomposed(node, call) or refusal)
        extra = next((output for output in node.output[1:] if output and output in self.used), None)
        if extra is not None:
            return f"the accelerator makes only its first output, and output {extra!r} is used"
        if self._append(kind.infer(call), call, node.output[0], name):
            return None
        refusal = kind.unsupported(call)
        return unless(refusal) if refusal else "it could not be evaluated"

    def _append(self, inferred: Inferred, call: Call, output: str, name: str) -> bool:
        """Adds the result as an alias, a constant or an op; False if it must be a constant but was not evaluated."""
        bounded(inferred.shape, name, f"output {output!r}")
        if inferred.source is not None:
            source = call.tensor(inferred.source)
            # a result that equals its input at the maxima only needs an op of its own
            if symbols_of(inferred.shape) == symbols_of(source.shape) and not has_dropped(inferred.shape):
                self._alias(output, source.name, name)
                return True
        unknown = form_is_at_maxima(inferred, call)
        tensor = Tensor(name=output, shape=inferred.shape, dtype=inferred.dtype, axes=inferred.axes, at_maxima=unknown)
        tensor = replace(tensor, why_at_maxima=why_at_maxima(inferred))
        kept = tuple(call.inputs[i] if i < len(call.inputs) else None for i in inferred.inputs)
        folded = self._fold(inferred, call, kept, tensor)
        if folded is not None:
            self.table.set_constant(output, folded)
            return True
        viewed = self._viewed(inferred, kept)
        if viewed is not None:
            kept = (viewed,)
            if symbols_of(viewed.shape) == symbols_of(inferred.shape) and viewed.shape == inferred.shape:
                self._alias(output, viewed.name, name)
                return True
        if any(t is not None and t.dtype not in DTYPE_NAMES for t in kept):
            return False
        self.table.tensors[output] = tensor
        self.made_by[output] = len(self.ops)
        self.ops.append(
            Op(
                kind=inferred.kind,
                inputs=tuple("" if t is None else t.name for t in kept),
                output=output,
                origin=(name,),
                attributes=tuple(sorted((key, fixed_value(value)) for key, value in inferred.attributes.items())),
                symbols=attribute_symbols(inferred.attributes),
            )
        )
        return True

    def _viewed(self, inferred: Inferred, kept: tuple[Tensor | None, ...]) -> Tensor | None:
        """The source of a view behind another view whose result has too many axes; None for any other op."""
        source = kept[0] if inferred.kind == "Reshape" else None
        if source is None or len(source.shape) <= MAX_AXES or source.name not in self.made_by:
            return None
        maker = self.ops[self.made_by[source.name]]
        return self.table.tensors[maker.inputs[0]] if maker.kind == "Reshape" else None

    def _alias(self, output: str, source: str, name: str) -> None:
        """Makes the output another name of the input."""
        self.table.alias[output] = source
        if source in self.made_by and self.ops[self.made_by[source]].kind != HOST:
            op = self.ops[self.made_by[source]]
            if name not in op.origin:
                self.ops[self.made_by[source]] = replace(op, origin=(*op.origin, name))

    def _fold(self, inferred: Inferred, call: Call, kept: tuple[Tensor | None, ...], output: Tensor) -> Folded | None:
        """The output as a constant, if it is empty, or if all inputs are constants and it is small or a description."""
        if output.elements == 0:
            data = Literal(data=b"")
            constant = Constant(shape=fixed_shape(output.shape), dtype=output.dtype, data=data)
            # a shape that is empty at the maxima may have elements at smaller extents
            unknown = form_is_at_maxima(inferred, call)
            return Folded(constant=constant, shape=output.shape, at_maxima=unknown)
        constants = [t.constant for t in kept if t is not None]
        present = tuple(c for c in constants if c is not None and not isinstance(c.data, Opaque))
        if not constants or len(present) < len(constants):
            return None
        shape = fixed_shape(output.shape)
        unknown = is_at_maxima(inferred, call, kept, output)
        if unknown and can_be_computed(inferred, call, kept, output):
            return None
        moves = inferred.kind in ("Reshape", "Transpose", "Expand", "Slice", "Tile")
        if moves and isinstance(present[0].data, Splat):
            constant = Constant(shape=shape, dtype=output.dtype, data=present[0].data)
            return Folded(constant=constant, shape=output.shape, at_maxima=form_is_at_maxima(inferred, call))
        known = all(t is None or t.name in self.table.values for t in kept)
        if known and output.elements <= FOLD_ELEMENTS and not keeps_quantised(inferred.kind, present, output):
            resolved = replace(call, op_type=inferred.kind, attributes=inferred.attributes, inputs=kept, output=output)
            arrays = tuple(None if t is None else self.table.values[t.name] for t in kept)
            kind = ALL_KINDS[inferred.kind]
            if inferred.kind in ("Div", "Mod") and output.dtype.startswith(("int", "uint")) and not np.all(arrays[1]):
                call.fail("division by zero in constant arithmetic", actual=0, limit="a divisor other than 0")
            with np.errstate(all="ignore"):
                result = kind.evaluate(resolved, arrays)
            if result is None:
                return None
            symbolic = None
            if any(t is not None and t.name in self.table.symbolic for t in kept):
                symbolic = symbolic_result(
                    inferred.kind,
                    [self.table.elements(t) for t in kept if t is not None],
                    np.asarray(result).reshape(shape),
                    lambda elements: kind.evaluate(resolved, tuple(elements)),
                    fmod=inferred.attributes.get("fmod"),
                )
                unknown = unknown or symbolic is None
                if unknown and can_be_computed(inferred, call, kept, output):
                    return None
            constant = literal(np.asarray(result).reshape(shape), output.dtype)
            symbols = None if symbolic is None else with_symbols(symbolic)
            if unknown and np.asarray(result).dtype.kind in "iu":
                symbols = unknown_extents(np.asarray(result).reshape(shape))
            return Folded(constant=constant, symbolic=symbols, shape=output.shape, at_maxima=unknown)
        depths = [self.table.depths.get(t.name, 0) for t in kept if t is not None]
        if all(t is not None for t in kept) and may_describe(present, output, depths):
            attributes = {key: fixed_value(value) for key, value in inferred.attributes.items()}
            self.table.depths[output.name] = 1 + max(depths, default=0)
            constant = derive(inferred.kind, present, shape, attributes, output.dtype)
            unknown = unknown or any(t is not None and t.name in self.table.symbolic for t in kept)
            return Folded(constant=constant, shape=output.shape, at_maxima=unknown)
        return None

    def _evaluated(self, node: onnx.NodeProto, call: Call, scope: Scope) -> bool:
        """Evaluates a host op with small constant inputs, unless its result varies and lists no extents; True if so."""
        results = None if node.op_type in OP_KINDS else evaluated_node(node, call, self.table.values, scope.opsets)
        unknown = any(varies(t) or (t is not None and t.name in self.table.symbolic) for t in call.inputs)
        if results is None or (unknown and all(np.ndim(result) > 1 for result in results)):
            return False
        for output, result in zip((o for o in node.output if o), results, strict=True):
            self.table.set_constant(output, Folded(constant=literal_of(result), at_maxima=unknown))
        return True

    def _split(self, node: onnx.NodeProto, call: Call) -> str | None:
        """Replaces Split by one Slice per used output, each with the Split as origin."""
        parts = slices_of_split(call, len(node.output))
        if parts is None:
            return "not run by the accelerator unless split (input 1) is known at compile time"
        refusal = OP_KINDS["Slice"].unsupported(replace(call, attributes={}, values={}, inputs=call.inputs[:1]))
        if refusal is not None and call.tensor(0).constant is None:
            return unless(refusal)
        for output, inferred in zip(node.output, parts, strict=True):
            if output and output in self.used:
                self._append(inferred, call, output, call.node)
        return None

    # What the accelerator does not run ------------------------------------------------------------------------------

    def _expanded(self, node: onnx.NodeProto, name: str, call: Call, signature: Signature, scope: Scope) -> bool:
        """Replaces an operator of ai.onnx.ml, or one by its ONNX function body if that is useful; True if it did."""
        schema = signature.schema
        found = classical_nodes(node, replace(call, opset=scope.version("")), self.fresh)
        if found is not None:
            self._nodes(found, name, replace(scope, depth=scope.depth + 1), inner_names=False)
            return True
        if not has_function(schema) or plain_domain(node.domain):
            return False
        if any(t is not None and (not t.is_known or t.dtype not in DTYPE_NAMES) for t in call.inputs):
            return False
        if node.op_type in OP_KINDS and not any(o and o in self.used for o in node.output[1:]):
            return False
        # the body refers to attributes by name; missing ones take their defaults
        node = with_defaults(node, schema)
        function = schema_function(node, call, schema, scope.version(""))
        if function is None or any(inner.op_type in CONTROL_FLOW for inner in all_nodes(function.node)):
            return False
        if any(inner.op_type == node.op_type for inner in function.node):
            return False
        versions = {plain_domain(entry.domain): int(entry.version) for entry in function.opset_import}
        versions.setdefault("", scope.version(""))
        body = instantiate(function, node, name, self.fresh)
        self._nodes(body, name, Scope(opsets=versions, depth=scope.depth + 1), inner_names=False)
        return True

    def _on_host(
        self, node: onnx.NodeProto, name: str, scope: Scope, reason: str, results: Sequence[HostResult]
    ) -> None:
        """Leaves the node to the host: one op per used result."""
        for op in self.host.leave(node, name, scope.opsets, reason, results, self.used):
            self.made_by[op.output] = len(self.ops)
            self.ops.append(op)

    # After the last node --------------------------------------------------------------------------------------------

    def finish(self) -> Graph:
        """The graph, without ops that no output needs."""
        proto = self.model.proto.graph
        outputs = []
        for value in proto.output:
            name = self.table.resolved(value.name)
            if name not in self.table.tensors:
                raise unmade_output(value.name)
            outputs.append(name)
        if not outputs:
            raise ModelError("the graph has no outputs", code="empty_graph", stage="import", actual=0, limit="1")
        kept = tuple(self._narrow(op) for op in self._needed(outputs))
        names = {name for op in kept for name in (*op.inputs, op.output) if name} | set(outputs)
        live = {node for op in kept for node in op.origin}
        unread = (*(name for name in self.table.graph_inputs if name not in names), *self.table.empty_inputs)
        hosts = {str(dict(op.attributes)["node"]) for op in kept if op.kind == HOST}
        made = {op.output: op.node for op in kept}
        for tensor in self.host.held(kept, outputs):
            check_held(tensor, made.get(tensor.name) or self._maker(tensor.name))
        return Graph(
            name=proto.name or self.table.source.name,
            ops=kept,
            tensors=MappingProxyType({name: settled(t) for name, t in self.table.tensors.items() if name in names}),
            inputs=tuple(name for name in self.table.graph_inputs if name in names),
            outputs=tuple(dict.fromkeys(outputs)),
            output_names=tuple(value.name for value in proto.output),
            output_tensors=tuple(outputs),
            folded=tuple(name for name in self.order if name not in live and name not in self.inlined),
            opset=self.model.opsets[""],
            host=MappingProxyType({name: node for name, node in self.host.nodes.items() if name in hosts}),
            dims=MappingProxyType(dict(sorted(self.table.fixed.items()))),
            tied=self.table.tied,
            ties=self.table.ties(names),
            unread=tuple(replace(settled(self.table.tensors[name]), constant=None) for name in unread),
            source=self.model.source,
        )

    def _maker(self, name: str) -> str | None:
        """The model's node that makes a value, folded or not; None if there is no such value."""
        nodes = zip(self.names, self.model.proto.graph.node, strict=True)
        return next((maker for maker, node in nodes if name in node.output), None)

    def _narrow(self, op: Op) -> Op:
        """The op; a view with too many axes becomes a host op instead.

        Such a view reads a graph input or a host node's result, or makes a graph output or a host node's operand. On
        the host it moves no data either. Between accelerator ops such views are already merged (`_viewed`).
        """
        if op.kind != "Reshape":
            return op
        source, result = (self.table.tensors[name] for name in (op.inputs[0], op.output))
        most = max(len(source.shape), len(result.shape))
        if most <= MAX_AXES:
            return op
        shape = self.fresh(f"{op.output}/shape")
        self.table.set_extents(shape, result.shape)
        return self.host.view(op, shape, f"a tensor has {most} axes, beyond the {MAX_AXES} that commands name")

    def _needed(self, outputs: Sequence[str]) -> tuple[Op, ...]:
        needed = set(outputs)
        kept: list[Op] = []
        for op in reversed(self.ops):
            if op.output in needed:
                kept.append(op)
                # a failed attempt may have left an earlier op with the same result
                needed.discard(op.output)
                needed.update(name for name in op.inputs if name)
        return tuple(reversed(kept))
