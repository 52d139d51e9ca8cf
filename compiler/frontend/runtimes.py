"""Runs an ONNX model on ONNX Runtime, or on onnx.reference if that fails, and reports which one ran it.

Both are imported on demand: a process that forks later must not have started ONNX Runtime's threads. Nothing is read
from or written to disk: weights reach ONNX Runtime as the buffers that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from types import MappingProxyType
from typing import Any, Final, Literal
from zlib import crc32

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from compiler.errors import printable
from compiler.frontend.constant_values import type_of_text
from compiler.frontend.host_steps import Repeating, repeating_in_model
from compiler.frontend.inline_functions import all_nodes, subgraphs
from compiler.frontend.read import plain_domain
from compiler.frontend.runnable import restamped, without_faults
from compiler.host_bound import HOST_BOUND, HostBound

Array = NDArray[Any]
# A tensor, a sequence (list) of them, or an optional one (None if it is empty).
Value = Any
NO_WEIGHTS: Final[Mapping[str, Array]] = MappingProxyType({})
# Operators with random results; a seed fixes the numbers (see `seed_random_nodes`).
_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
# Element types that ONNX Runtime accepts from numpy.
_FROM_NUMPY: Final = frozenset(
    {"float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"}
)
_LOCATION: Final = "memory"
Runtime = Literal["onnxruntime", "onnx.reference"]
# Exceptions of the evaluation in Python. ImportError: an operator needs a package that is not installed. MemoryError:
# an array of any size; ONNX Runtime also reports that as a failure.
_REFERENCE_FAILURES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A model's outputs in order, or None if no runtime could run it; which runtime ran, and why not the first.

    `judge` names the runtime and its version. `reason` is empty if the first runtime ran. `is_refused`: ONNX Runtime
    knows all operators of the model, but failed to compute with these values.
    """

    values: tuple[Value, ...] | None
    judge: str
    reason: str
    is_refused: bool = False


def run_model(
    model: onnx.ModelProto,
    feeds: Mapping[str, Value],
    *,
    weights: Mapping[str, Array] = NO_WEIGHTS,
    threads: int = 1,
    runtimes: Sequence[Runtime] = ("onnxruntime", "onnx.reference"),
    bound: HostBound = HOST_BOUND,
) -> Run:
    """The values of a model's outputs; `weights` are the initializers whose data the model does not hold.

    The first of `runtimes` that succeeds counts. Raises HostBoundError naming the node if the run exceeds `bound`.
    """
    reasons: list[str] = []
    refused = False
    waited = repeating_in_model(model, {**weights, **feeds}, bound)
    for runtime in runtimes:
        if runtime == "onnxruntime":
            run = _on_onnxruntime(model, feeds, weights, threads, waited)
        else:
            run = _on_onnx_reference(model, feeds, weights, waited)
        if run.values is not None:
            return Run(values=run.values, judge=run.judge, reason="; ".join(reasons))
        reasons.append(run.reason)
        refused = refused or run.is_refused
    return Run(values=None, judge="", reason="; ".join(reasons), is_refused=refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """ONNX Runtime's answer to loading a model: `outputs` maps names to (type, extents; None for an unknown one).

    `reason` says why loading failed; it is empty on success.
    """

    outputs: Mapping[str, tuple[str, tuple[int | None, ...]]]
    reason: str


def silent_onnxruntime() -> Any:
    """The module `onnxruntime`, told to send nothing.

    It tells its maker over the network when it is used, in threads of its own: no business of a service that compiles
    other people's models, and these threads load libraries at times when that can stop the process.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def load_model(model: onnx.ModelProto) -> Loaded:
    """Loads a model on ONNX Runtime without running it; raises no error."""
    onnxruntime = silent_onnxruntime()
    judge = f"ONNX Runtime {onnxruntime.__version__}"
    try:
        data = restamped(model).SerializeToString()
        session = onnxruntime.InferenceSession(data, _session_options(1), providers=["CPUExecutionProvider"])
    except _failures(onnxruntime.capi.onnxruntime_pybind11_state) as error:
        return Loaded(outputs={}, reason=f"{judge} does not load it: {_one_line(error)}")
    outputs = {
        found.name: (found.type, tuple(e if isinstance(e, int) and e >= 0 else None for e in found.shape))
        for found in session.get_outputs()
    }
    return Loaded(outputs=MappingProxyType(outputs), reason="")


def _session_options(threads: int) -> Any:
    """ONNX Runtime's options here: deterministic, silent, without graph optimisations."""
    onnxruntime = silent_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    # fused kernels of quantised operators round differently from the single operators
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _on_onnxruntime(
    model: onnx.ModelProto,
    feeds: Mapping[str, Value],
    weights: Mapping[str, Array],
    threads: int,
    waited: Repeating | None,
) -> Run:
    """Runs on ONNX Runtime's CPU provider without graph optimisations, so each operator follows its definition."""
    onnxruntime = silent_onnxruntime()
    judge = f"ONNX Runtime {onnxruntime.__version__}"
    options = _session_options(threads)
    light, shared = _with_references(without_faults(restamped(model)), weights)
    light, feeds = _with_constants(light, feeds)
    buffers = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in shared.items()}
    if buffers:
        options.add_external_initializers(list(buffers), list(buffers.values()))
    failures = _failures(onnxruntime.capi.onnxruntime_pybind11_state)
    session = None
    try:
        data = light.SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        del data, light
        run_options = onnxruntime.RunOptions()
        made = _within(
            waited,
            lambda: list(session.run(None, dict(feeds), run_options)),
            lambda: setattr(run_options, "terminate", True),
        )
        found = [_retyped(value, declared.type) for value, declared in zip(made, session.get_outputs(), strict=True)]
    except failures as error:
        reason = f"{judge} could not run it: {_one_line(error)}"
        # ONNX Runtime's own errors, except for a missing kernel; other errors come from its Python inputs
        lacks = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented, RuntimeError, TypeError, ValueError
        is_refused = session is not None and not isinstance(error, lacks)
        return Run(values=None, judge="", reason=reason, is_refused=is_refused)
    return Run(values=tuple(found), judge=judge, reason="")


def _within(waited: Repeating | None, run: Callable[[], list[Value]], stop: Callable[[], None]) -> list[Value]:
    """The result of `run`; with a `waited` node, in a thread that `stop` ends after the time limit.

    `stop` also ends the thread if a signal handler raises, such as that of a time limit. Raises HostBoundError.
    """
    if waited is None:
        return run()
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(run)
        try:
            return running.result(timeout=waited.bound.seconds)
        except TimeoutError:
            raise waited.too_slow() from None
        finally:
            stop()


def _retyped(value: Value, kind: str) -> Value:
    """A tensor in numpy's type for its element type: ONNX Runtime returns small floats as their bits.

    Raises TypeError if the returned array does not hold one element per item.
    """
    declared = type_of_text(kind) if isinstance(value, np.ndarray) else None
    if declared is None or not declared.HasField("tensor_type") or value.dtype.kind in "OSU":
        return value
    wanted = onnx.helper.tensor_dtype_to_np_dtype(declared.tensor_type.elem_type)
    if value.dtype == wanted:
        return value
    if value.dtype.itemsize != wanted.itemsize:
        raise TypeError(f"{value.dtype} stands for {kind}")
    return value.view(wanted)


def _failures(state: Any) -> tuple[type[Exception], ...]:
    """ONNX Runtime's exceptions: its own ones, which share no base class, and Python's for bad inputs."""
    own = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*own, RuntimeError, ValueError, TypeError)


def _on_onnx_reference(
    model: onnx.ModelProto, feeds: Mapping[str, Value], weights: Mapping[str, Array], waited: Repeating | None
) -> Run:
    """Runs on ONNX's reference evaluation: all operators, in numpy."""
    from onnx.reference import ReferenceEvaluator

    stopped = Event()

    class Evaluator(ReferenceEvaluator):
        """Ends once stopped, before the next run of a body; it also evaluates the bodies."""

        def run(self, *arguments: Any, **named: Any) -> Any:
            if stopped.is_set():
                raise RuntimeError("stopped")
            return super().run(*arguments, **named)

    judge = f"onnx.reference {onnx.__version__}"

    def run() -> list[Value]:
        with np.errstate(all="ignore"):
            return list(Evaluator(with_data(model, weights)).run(None, dict(feeds)))

    try:
        found = _within(waited, run, stopped.set)
    except _REFERENCE_FAILURES as error:
        return Run(values=None, judge="", reason=f"{judge} could not run it: {_one_line(error)}")
    return Run(values=tuple(_plain(value) for value in found), judge=judge, reason="")


def _plain(value: Value) -> Value:
    """Numpy scalars as arrays; sequences and empty optionals unchanged."""
    if value is None or isinstance(value, np.ndarray):
        return value
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else np.asarray(value)


def _one_line(error: BaseException) -> str:
    text = printable(" ".join(str(error).split()), 300)
    return f"{type(error).__name__}: {text}"


def _with_references(
    model: onnx.ModelProto, weights: Mapping[str, Array]
) -> tuple[onnx.ModelProto, Mapping[str, Array]]:
    """The model with references to shared weights and the bytes of the others, and the shared weights by name."""
    shared = {name: array for name, array in weights.items() if array.dtype.name in _FROM_NUMPY and array.size}
    return _rewritten(model, weights, shared), shared


def _with_constants(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> tuple[onnx.ModelProto, Mapping[str, Value]]:
    """The model with inputs of types that ONNX Runtime does not accept from numpy as constants, and the other feeds."""
    foreign = {
        name: value
        for name, value in feeds.items()
        if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU" and value.dtype.name not in _FROM_NUMPY
    }
    if not foreign:
        return model, feeds
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [declared for declared in copy.graph.input if declared.name not in foreign]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in foreign.items())
    return copy, {name: value for name, value in feeds.items() if name not in foreign}


def with_data(model: onnx.ModelProto, weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with all its weights inside."""
    return _rewritten(model, weights, NO_WEIGHTS)


def _rewritten(model: onnx.ModelProto, weights: Mapping[str, Array], shared: Mapping[str, Array]) -> onnx.ModelProto:
    if not weights:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name in shared:
            tensor.data_location = TensorProto.EXTERNAL
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value=_LOCATION)
        elif tensor.name in weights:
            tensor.raw_data = weights[tensor.name].tobytes()
    return copy


def is_random(node: onnx.NodeProto) -> bool:
    """True if the node, or one in its subgraphs, draws random numbers (Dropout does in training)."""
    return any(_draws(inner) for inner in all_nodes([node]))


def _draws(node: onnx.NodeProto) -> bool:
    if plain_domain(node.domain) != "":
        return False
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2]))


def seed_random_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives random nodes without a seed one derived from their result's name, in place.

    Every run of the file then draws the same numbers, and a host segment draws those of the whole model, as long as one
    runtime runs both. ONNX does not define the numbers of a seed.
    """
    for node in nodes:
        if _draws(node) and not any(attribute.name == "seed" for attribute in node.attribute):
            seed = crc32(next((name for name in node.output if name), "").encode()) % 2**20
            value = seed if node.op_type == "Dropout" else float(seed)
            node.attribute.append(onnx.helper.make_attribute("seed", value))
        for graph in subgraphs(node):
            seed_random_nodes(graph.node)
