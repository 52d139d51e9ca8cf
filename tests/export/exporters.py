"""From a network to the bytes of an ONNX file, by either exporter of torch."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Mapping
from typing import Any

import onnx
import torch
from torch import nn

from tests.export.network import Network, Values, Variant

CALIBRATION_PASSES = 4


def build_module(network: Network, seed: int) -> Any:
    """The module with seeded weights, none of them degenerate, ready to infer.

    Scales and shifts of normalisations are drawn at random (they start as ones and zeros, which would hide an error),
    and running statistics and scales come from a few passes over random inputs.
    """
    torch.backends.mha.set_fastpath_enabled(False)  # the tracing exporter does not know the fused operator
    torch.manual_seed(seed)
    module = network.build()
    with torch.no_grad():
        for part in module.modules():
            if type(part).__name__.endswith("Norm") or isinstance(part, nn.modules.batchnorm._NormBase):
                for parameter, low, high in ((part.weight, 0.6, 1.4), (getattr(part, "bias", None), -0.3, 0.3)):
                    if parameter is not None:
                        parameter.uniform_(low, high)
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.momentum = None
        module.train()
        for index in range(CALIBRATION_PASSES):
            module(*torch_inputs(network, seed=1000 + index))
    return module.eval()


def torch_inputs(network: Network, seed: int) -> tuple[Any, ...]:
    """Random inputs in the order of the module's arguments."""
    return tuple(torch.from_numpy(array) for array in network.input_values(network.dims, seed).values())


def outputs_of(module: Any, inputs: Mapping[str, Values]) -> list[Values]:
    """What the module computes from the inputs, given in the order of its arguments."""
    with torch.no_grad():
        result = module(*(torch.from_numpy(array) for array in inputs.values()))
    return [value.numpy() for value in ([result] if isinstance(result, torch.Tensor) else result)]


def export(network: Network, variant: Variant, module: Any) -> bytes:
    """The ONNX file, without anything that depends on where it was made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = (
            _torchscript(network, variant, module)
            if variant.exporter == "torchscript"
            else _dynamo(network, variant, module)
        )
    _strip(model)
    model.producer_version = model.producer_version.split("+")[0]  # the rest tells builds of torch apart
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _torchscript(network: Network, variant: Variant, module: Any) -> onnx.ModelProto:
    axes = {entry.name: entry.dynamic_axes for entry in network.inputs} | {
        name: dict(dynamic) for name, dynamic in network.outputs.items()
    }
    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(
            module,
            torch_inputs(network, seed=1),
            file,
            dynamo=False,
            opset_version=variant.opset,
            do_constant_folding=variant.optimise,
            input_names=[entry.name for entry in network.inputs],
            output_names=list(network.outputs),
            dynamic_axes={name: dynamic for name, dynamic in axes.items() if dynamic},
        )
    return onnx.load_model_from_string(file.getvalue())


def _dynamo(network: Network, variant: Variant, module: Any) -> onnx.ModelProto:
    shapes = [entry.dynamic_axes for entry in network.inputs]
    with torch.no_grad():
        program = torch.onnx.export(
            module,
            torch_inputs(network, seed=1),
            dynamo=True,
            opset_version=variant.opset,
            input_names=[entry.name for entry in network.inputs],
            output_names=list(network.outputs),
            dynamic_shapes=_by_argument(module, shapes) if any(shapes) else None,
            optimize=variant.optimise,
            external_data=False,
            verbose=False,
        )
    model = onnx.ModelProto()
    model.CopyFrom(program.model_proto)
    return model


def _by_argument(module: Any, shapes: list[dict[int, str]]) -> tuple[Any, ...]:
    """The dynamic axes as torch.export wants them: those of `*arguments` in a tuple of their own."""
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(shapes)
    plain = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:plain], tuple(shapes[plain:]))


def _strip(message: Any) -> None:
    """Remove documentation and metadata, which carry stack traces and paths, from a message and all inside it."""
    for descriptor, value in message.ListFields():
        if descriptor.name in ("metadata_props", "doc_string"):
            message.ClearField(descriptor.name)
        elif descriptor.message_type is not None:
            for part in value if descriptor.is_repeated else (value,):
                _strip(part)
