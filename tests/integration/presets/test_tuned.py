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
from tests.integration.presets.conftest import Vllm
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import RunnerAgent
from tests.support.factories.families import make_family
from tests.support.processes.engine import RunningEngine, running_engine
from tests.support.processes.forked import ForkServer
from transformers import AutoModelForCausalLM, AutoTokenizer

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.modelfiles.presets import shipped
from windlass_agent.engines.builtin.generation.loading import UnsupportedModel, load_model
from windlass_agent.engines.registry import engines

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
# What vLLM's build for CPUs says of a type that it does not serve in 32 bits.
NOT_ON_CPUS = {"qwen3_next": "requires BF16"}
# Types with experts, to which vLLM adds adapters by kernels of Triton, and so on GPUs alone: the
# base is served without.
BASES_ON_CPUS = (
    "deepseek_v3", "glm4_moe", "gpt_oss", "granitemoe", "mixtral", "qwen2_moe", "qwen3_moe",
)  # fmt: skip
# Types whose base says something else there than by transformers, from its second word on. Whether
# it is the tiny model, vLLM's latent attention on CPUs or either library is open.
OTHERWISE_ON_CPUS = ("deepseek_v3",)

# A processor that multiplies matrices has kernels of its own, for half precision alone.
_WITH_AMX = "expect weight to be bfloat16"


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


async def test_the_built_in_engine_says_with_it_what_peft_says(tuned: Tuned) -> None:
    if "builtin" in shipped()[tuned.preset].limits:
        with pytest.raises(UnsupportedModel):
            load_model(tuned.base, name="toy")
        return
    with running_engine(tuned.base, max_adapters=1) as running:
        control = engines()["builtin"].control(running.endpoint)
        try:
            await control.load_adapter(TUNED, tuned.adapter)
            assert await answers(running) == tuned.said
        finally:
            await control.close()


async def test_vllm_says_with_it_what_peft_says(tuned: Tuned, vllm: Vllm) -> None:
    told = vllm.ask(tuned.base, prompt=PROMPT, tokens=TOKENS, adapter=str(tuned.adapter))
    if why := NOT_ON_CPUS.get(tuned.model_type):
        assert why in told["refused"]
        return
    names = ["toy", TUNED]
    if tuned.model_type in BASES_ON_CPUS:
        assert "triton" in told["refused"] or _WITH_AMX in told["refused"], told
        told = vllm.ask(tuned.base, prompt=PROMPT, tokens=TOKENS, adapter="")
        names.remove(TUNED)
    if tuned.model_type in OTHERWISE_ON_CPUS:
        assert told.get("said") or _WITH_AMX in told["refused"], told
        return
    said = [text.rstrip("\ufffd") for text in told.get("said", ())]
    assert said == [tuned.said[name] for name in names], told


async def answers(running: RunningEngine) -> dict[str, str]:
    found = {}
    async with running.client() as client:
        for name in ("toy", TUNED):
            answer = await client.completions.create(
                model=name, prompt=PROMPT, max_tokens=TOKENS, temperature=0
            )
            found[name] = answer.choices[0].text.rstrip("\ufffd")
    return found
