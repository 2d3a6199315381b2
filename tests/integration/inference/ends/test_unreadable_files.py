"""Files that an engine cannot read: it has failed, in words without a path, and does not go on.

Files in a form that could be anything are refused when they are imported; these look well.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.agents.engine_machine import START_SECONDS, machine, workload
from tests.support.agents.file_store import file_store
from tests.support.environments.postgres import reachable_folder
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.factories.toy_model import make_model
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.engines.registry import EnginePrograms, engines

pytestmark = [
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]


def cut(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def of_no_kind(model: Path) -> None:
    config = json.loads((model / "config.json").read_bytes())
    named = {"model_type": "nothing", "architectures": ["NothingForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config | named))


@pytest.mark.parametrize("kind", ["builtin", "vllm"])
@pytest.mark.parametrize(
    ("spoil", "word"), [(cut, "file|header|incomplete"), (of_no_kind, "nothing|architecture")]
)
async def test_it_fails_in_words(
    kind: str, spoil: Callable[[Path], None], word: str, tmp_path: Path
) -> None:
    spoil(make_model(tmp_path / "mv-toy", hidden=128))
    python = await asyncio.to_thread(vllm_python) if kind == "vllm" else None
    kinds = engines(EnginePrograms(vllm_python=python))
    with (
        turn() if kind == "vllm" else nullcontext(),
        file_store(tmp_path) as store,
        reachable_folder() as folder,
    ):
        async with machine(folder, kinds=kinds, gpus=()) as host:
            await host.driver.apply(workload(store, kind=kind))
            status = await until(
                host.status,
                START_SECONDS,
                holds=lambda found: found.phase == pb.PHASE_FAILED,
            )
            assert status.message.startswith("The engine ended with code")
            assert any(one in status.message.lower() for one in word.split("|")), status.message
            assert str(folder) not in status.message
            assert not host.processes()
