"""Errors of lowering with longer messages than fit where they are raised."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import onnx

from compiler.errors import LimitError, ModelError, printable
from compiler.ir.graph import Graph
from compiler.ops.base import Refusal

# Largest number of dimensions named with their input; the hint lists all.
_NAMED: Final = 16
# Suggested extent: image networks shrink their maps up to 32 times, so a smaller one may be refused.
_EXTENT: Final = 64
# Codes of errors that other extents may cure.
_OF_EXTENTS: Final = ("invalid_model", "invalid_shape")
# Names that need no quoting in a shell or in `key=value`.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/-]+", re.ASCII)


def unmade_value(node: onnx.NodeProto, name: str, value: str) -> ModelError:
    return ModelError(
        f"a node reads value {printable(value, 120)!r}, which no node makes",
        code="missing_value",
        stage="import",
        node=name,
        op_type=node.op_type,
        actual=printable(value, 120),
        limit="a graph input, an initializer or the output of a node",
    )


def unmade_output(value: str) -> ModelError:
    return ModelError(
        f"graph output {printable(value, 120)!r} is produced by no node",
        code="missing_value",
        stage="import",
        actual=printable(value, 120),
        limit="the output of a node",
    )


def malformed(node: onnx.NodeProto, name: str, error: Exception) -> ModelError:
    return ModelError(
        f"op {printable(node.op_type, 80)!r} cannot be read: its attributes or constants are malformed",
        code="invalid_model",
        stage="import",
        node=name,
        op_type=node.op_type,
        actual=f"{type(error).__name__}: {error}",
    )


def too_many_nodes(node: onnx.NodeProto, name: str, nodes_max: int, levels_max: int) -> LimitError:
    return LimitError(
        "with its functions expanded the graph has too many nodes",
        code="expansion_too_large",
        stage="import",
        node=name,
        op_type=node.op_type,
        actual=f"more than {nodes_max} nodes, or {levels_max} levels",
        limit=nodes_max,
    )


def missing_dims(missing: Mapping[str, tuple[str, int]]) -> ModelError:
    """The error for dimensions without an extent; `missing` maps each to the first input and axis that have it.

    The hint suggests an extent for each (1 along axis 0, usually the batch), as option `dims` of a request and then as
    arguments of the command line (IMPORT-10).
    """
    where = "; ".join(
        f"{printable(name, 80)!r} ({what}, axis {axis})" for name, (what, axis) in list(missing.items())[:_NAMED]
    )
    more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    extents = {name: 1 if axis == 0 else _EXTENT for name, (_, axis) in missing.items()}
    return ModelError(
        f"the request gives no extent for {len(missing)} dynamic dimensions: {where}{more}"
        if len(missing) > 1
        else f"the request gives no extent for dynamic dimension {where}",
        code="dynamic_dim",
        stage="import",
        actual=", ".join(printable(n, 40) for n in missing),
        limit="an extent or a range for every dynamic dimension",
        hint=f'Give extents, such as "dims": {json.dumps(extents)} in options, or {" ".join(_words(extents))}',
    )


def _words(extents: Mapping[str, int]) -> Iterator[str]:
    """Command line arguments for extents by name; unusual names as JSON."""
    unusual = {}
    for name, extent in extents.items():
        if _PLAIN.fullmatch(name):
            yield f"--set dims.{name}={extent}"
        else:
            unusual[name] = extent
    if unusual:
        yield f"--set {shlex.quote('dims=' + json.dumps(unusual))}"


def not_strict(graph: Graph) -> ModelError:
    first = next(iter(graph.host.values()))
    return ModelError(
        f"op {printable(first.op_type, 80)!r} stays on the host, and option strict forbids that: {first.reason}",
        code="unsupported_op",
        stage="import",
        node=first.name,
        op_type=first.op_type,
        actual=f"{len(graph.host)} nodes on the host",
        limit="0 with option strict",
        hint="Leave out strict to run them on the host, or export the model without them",
    )


def data_elsewhere(what: str, node: str | None, where: str, op_type: str | None = None) -> ModelError:
    """The error for external data that only ONNX Runtime would open."""
    return ModelError(
        f"{what} has its data in another file",
        code="external_data",
        stage="import",
        node=node,
        op_type=op_type,
        actual=f"external data in {where}",
        limit="external data of the graph's own initializers and constants",
        hint=f"Store the data of {where} inside the model",
    )


def unless(refusal: Refusal) -> str:
    """Why the host runs a node that the accelerator could run in another form."""
    return f"not run by the accelerator unless {refusal.reason} (here {refusal.actual})"


@contextmanager
def at_extents(dims: Mapping[str, int]) -> Iterator[None]:
    """Errors of reading a model at these extents: hints name them, for the request may be at fault.

    A dimension that is fixed at 0 is named alone, because not every op can be empty.
    """
    try:
        yield
    except ModelError as error:
        empty = {name: extent for name, extent in dims.items() if extent == 0}
        if empty:
            error.hint = (
                f"This op may not be possible without elements: give another extent than {' '.join(_words(empty))}"
            )
        elif dims and error.code in _OF_EXTENTS and error.hint == ModelError.default_hint:
            named = dict(list(dims.items())[:_NAMED])
            more = ", ..." if len(dims) > len(named) else ""
            error.hint = (
                f"Check the extents that the request gives ({' '.join(_words(named))}{more}): they must suit this op "
                "and each other. If every extent fails, correct what is named and export the model again"
            )
        raise
