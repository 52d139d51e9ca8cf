"""The errors of lowering that say more than where they are raised has room for."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from compiler.errors import ModelError, printable
from compiler.ir.graph import Graph


def unmade_value(node: onnx.NodeProto, name: str, value: str) -> ModelError:
    return ModelError(
        f"a node reads value {printable(value, 120)!r}, which nothing makes",
        code="missing_value",
        stage="import",
        node=name,
        op_type=node.op_type,
        actual=printable(value, 120),
        limit="a graph input, an initializer or the output of a node",
    )


def missing_dims(missing: Mapping[str, str]) -> ModelError:
    names = list(missing)
    first = printable(names[0], 80)
    more = f" (and {len(names) - 1} more: {', '.join(printable(n, 40) for n in names[1:6])})" if names[1:] else ""
    return ModelError(
        f"{missing[names[0]]} has the dynamic dimension {first!r}, and option dims gives no maximum for it{more}",
        code="dynamic_dim",
        stage="import",
        actual=", ".join(printable(n, 40) for n in names[:8]),
        limit="a maximum for every dynamic dimension",
        hint="Give them one: " + " ".join(f"--set dims.{printable(n, 40)}=1" for n in names[:8]),
    )


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
