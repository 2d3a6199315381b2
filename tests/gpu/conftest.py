"""What the tests on a GPU need: the GPU, and a model and data of whoever runs them."""

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.gpu import recipes

EXAMPLES = 2000


@pytest.fixture(scope="module")
def model() -> Path:
    """The folder of the model to train and to serve."""
    import torch

    if not torch.cuda.is_available():
        _lacking("It needs a GPU, and torch finds none on this machine.")
    folder = Path(os.environ.get("E2E_MODEL") or "/nowhere")
    if not (folder / "config.json").exists():
        _lacking("It needs a model: make e2e-gpu MODEL=folder of Llama 3.2 1B.")
    return folder.resolve()


def _lacking(what: str) -> NoReturn:
    """Fails the test for whoever asked for it; skips it in a run of all tests."""
    if os.environ.get("E2E_GPU"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module")
def chats() -> list[dict[str, Any]]:
    """The conversations that are trained on."""
    data = os.environ.get("E2E_DATA")
    return recipes.read_alpaca(Path(data) if data else None, EXAMPLES)
