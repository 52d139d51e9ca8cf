"""What the suite's tests are run with: somebody who counts native ops, and a folder of their own for models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backend.backend import NATIVE_OPS
from tests.backend.summary import PROPERTY


@pytest.fixture(autouse=True)
def _native_ops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Report with the test how many native ops the executables had that it ran."""
    heard: list[int] = []
    request.node.user_properties.append((PROPERTY, heard))
    token = NATIVE_OPS.set(heard)
    yield
    NATIVE_OPS.reset(token)


@pytest.fixture(autouse=True, scope="class")
def _models_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The runner writes inputs and outputs of the large networks into a folder: not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("models")))
        yield
