"""Each type that a preset is for is tuned by a runner and served, as a tiny random model."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from peft import PeftModel
from safetensors import safe_open
from tests.integration.engines.reference import Reference
from tests.integration.presets.conftest import SERVES
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import RunnerAgent
from tests.support.factories.families import make_family
from tests.support.processes.engine import RunningEngine
from tests.support.processes.forked import ForkServer
from transformers import AutoModelForCausalLM, AutoTokenizer

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.modelfiles.presets import shipped
from windlass_agent.engines.registry import engines
from windlass_agent.engines.vllm_engine import VllmEngine

pytestmark = [
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]
PROMPT, TOKENS = "the quick brown", 16
TUNED = "ft:toy"
KINDS = [
    (name, model_type)
    for name, preset in shipped().items()
    if preset.task == "generation" and "training" not in preset.limits
    for model_type in preset.types
]
# What vLLM's build for CPUs does not do with a type, beside the limits of presets.
NOT_ON_CPUS: dict[str, str] = {}


@dataclass
class Tuned:
    """A base and an adapter that a runner made of it, with what transformers says by each."""

    preset: str
    model_type: str
    base: Path
    adapter: Path
    said: dict[str, str]


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=KINDS, ids=["-".join(one) for one in KINDS]
)
async def tuned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, trl_forks: ForkServer
) -> AsyncIterator[Tuned]:
    preset, model_type = request.param
    folder = tmp_path_factory.mktemp("tuned")
    base = make_family(folder / "base", preset, model_type)
    agent = RunnerAgent(folder / "agent")
    await agent.start()
    case = Case(folder, agent, base, trl_forks)
    try:
        case.assign(epochs=2, rate=50, targets=shipped()[preset].lora_targets)
        runner = await case.start()
        assert await runner.wait() == 0, case.log()
        (final,) = agent.of_kind(pb.ARTIFACT_KIND_FINAL)
        said = {"toy": greedy(base), TUNED: greedy(base, final.folder)}
        yield Tuned(preset, model_type, base, final.folder, said)
    finally:
        await case.close()
        await agent.stop()


def greedy(base: Path, adapter: Path | None = None) -> str:
    network: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if adapter is not None:
        network = PeftModel.from_pretrained(network, adapter)
    reference = Reference(network.eval(), AutoTokenizer.from_pretrained(base))
    ids = reference.tokenizer.encode(PROMPT)
    return reference.text(reference.greedy(ids, TOKENS))


async def test_an_adapter_is_on_the_layers_of_its_preset(tuned: Tuned) -> None:
    targets = set(shipped()[tuned.preset].lora_targets)
    config = json.loads((tuned.adapter / "adapter_config.json").read_text())
    assert set(config["target_modules"]) == targets
    with safe_open(tuned.adapter / "adapter_model.safetensors", "pt") as file:
        held = {name.split(".lora_")[0].rpartition(".")[2] for name in file.keys()}  # noqa: SIM118
    assert held == targets
    assert tuned.said["toy"] != tuned.said[TUNED]


async def test_an_engine_says_with_it_what_peft_says(tuned: Tuned, kind: str) -> None:
    is_limited = kind in shipped()[tuned.preset].limits
    if is_limited or (kind == "vllm" and tuned.model_type in NOT_ON_CPUS):
        with pytest.raises(AssertionError, match="the engine ended"), SERVES[kind](tuned.base):
            pass
        return
    with SERVES[kind](tuned.base) as running:
        control = (VllmEngine(Path("python")) if kind == "vllm" else engines()["builtin"]).control(
            running.endpoint
        )
        try:
            await control.load_adapter(TUNED, tuned.adapter)
            assert await answers(running) == tuned.said
        finally:
            await control.close()


async def answers(running: RunningEngine) -> dict[str, str]:
    found = {}
    async with running.client() as client:
        for name in ("toy", TUNED):
            answer = await client.completions.create(
                model=name, prompt=PROMPT, max_tokens=TOKENS, temperature=0
            )
            found[name] = answer.choices[0].text.rstrip("\ufffd")
    return found
