"""A server without an agent, a shell of its owner, a model and a training file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.factories.feather import make_feather, weights
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass, make_single, running

ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    with running(
        make_single(tmp_path_factory.mktemp("cli") / "data", {"agent": {"enabled": False}})
    ) as server:
        yield server


@pytest.fixture
def shell(server: Windlass, tmp_path: Path) -> Shell:
    return Shell(server, tmp_path)


@pytest.fixture(scope="module")
def model(server: Windlass, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that is never loaded."""
    folder = make_feather(tmp_path_factory.mktemp("model") / "feather")
    (folder / "model.safetensors").write_bytes(weights(300_000))
    (folder / "notes.bin").write_bytes(b"never sent")
    shell = Shell(server, tmp_path_factory.mktemp("home"))
    assert shell.object("models", "import", str(folder))["id"] == "feather"
    return "feather"


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n" * 12)
    return str(path)
