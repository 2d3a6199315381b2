"""vLLM with a draft model, in its build for CPUs: it says what the model alone would say."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
import torch
from tests.support.agents.engine_machine import machine, model_store, workload
from tests.support.environments.postgres import reachable_folder
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.processes.engine import RunningEngine
from transformers import AutoModelForCausalLM, AutoTokenizer

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments, to_message
from windlass_agent.engines.registry import EnginePrograms, engines

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.long, pytest.mark.timeout(1800)]
PROMPT, TOKENS = "the quick", 60
ARGUMENTS = EngineArguments(
    context_length=384,
    max_concurrency=2,
    dtype="float32",
    eager=True,
    kv_cache_bytes=2**28,
    max_adapter_rank=16,
    draft_model="small",
    draft_tokens=4,
)


def greedy(folder: Path) -> str:
    """What transformers says with the model alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForCausalLM.from_pretrained(folder)
    asked = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        said = network.generate(
            asked, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False
        )
    return str(tokenizer.decode(said[0, asked.shape[1] :], skip_special_tokens=True))


def counted(endpoint: str) -> dict[str, float]:
    """Tokens that the engine says were guessed, and those of them that were right."""
    with RunningEngine(Path(), "toy", endpoint, 0, 0.0).http() as http:
        page = http.get("/metrics", timeout=httpx.Timeout(60)).text
    found = re.findall(r"^vllm:spec_decode_num_(\w+)_total{[^}]*} (\S+)$", page, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_a_draft_changes_no_answer_and_no_count(tmp_path: Path) -> None:
    kinds = engines(EnginePrograms(vllm_python=await asyncio.to_thread(vllm_python)))
    with model_store(tmp_path, hidden=128) as store, reachable_folder() as folder, turn():
        async with machine(folder, kinds=kinds, gpus=()) as host:
            wish = workload(store, "mv-a", kind="vllm", arguments=to_message(ARGUMENTS))
            await host.driver.apply(wish)
            status = await host.reaches(pb.PHASE_RUNNING, loaded=1)
            async with RunningEngine(Path(), "toy", status.endpoint, 0, 0.0).client() as client:
                answers = {
                    model: await client.completions.create(
                        model=model,
                        prompt=PROMPT,
                        max_tokens=TOKENS,
                        temperature=0,
                        extra_body={"ignore_eos": True, "min_tokens": TOKENS},
                    )
                    for model in ("toy", "ft:mv-a")
                }
            (load,) = (await host.driver.loads()).values()
            counts = counted(status.endpoint)
    assert answers["toy"].choices[0].text == greedy(tmp_path / "mv-toy")
    assert answers["ft:mv-a"].choices[0].text != answers["toy"].choices[0].text
    for answer in answers.values():
        assert answer.usage
        assert answer.usage.completion_tokens == TOKENS
    # And one of the agent's own, before them.
    assert load.generated_tokens == 2 * TOKENS + 1, "what was guessed wrongly counts for nothing"
    assert 0 < counts["accepted_tokens"] < counts["draft_tokens"]
