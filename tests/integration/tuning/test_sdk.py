"""Loops written with the tinker SDK alone run against this server, of this release and an older."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments import made_once, required
from tests.support.services.front import Front

# Loops are as loose about types as its users are.
tinker: Any = import_module("tinker")
types: Any = tinker.types
OLDER = "0.22.7"
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


async def in_a_thread(program: Callable[..., Any], front: Front, key: str = "") -> Any:
    """Runs a client's program, which blocks, beside the server."""
    os.environ["TINKER_TELEMETRY"] = "0"
    return await asyncio.to_thread(program, front.url, "tml-" + (key or front.owner_key))


def supervised(url: str, key: str) -> dict[str, Any]:
    """Trains, saves, and goes on from what it saved."""
    service = tinker.ServiceClient(base_url=url, api_key=key)
    training = service.create_lora_training_client(base_model="toy", rank=8).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3, 4]),
        loss_fn_inputs={"target_tokens": [2, 3, 4, 5], "weights": [0.0, 1.0, 1.0, 1.0]},
    )
    steps = []
    for _ in range(3):
        computed = training.forward_backward([datum] * 3, "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-4))
        assert len(computed.result().loss_fn_outputs) == 3
        steps.append(stepped.result().metrics["step:max"])
    # In pieces, of which the first is sent last.
    many = training.forward_backward([datum] * 2500, "cross_entropy").result()
    path = training.save_state("end").result().path
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    after = resumed.optim_step(types.AdamParams()).result().metrics["step:max"]
    with pytest.raises(tinker.RequestFailedError, match="'boom' is not known"):
        training.forward_backward([datum], "boom").result()
    info = training.get_info()
    service.close("success").result()
    return {
        "steps": steps, "many": len(many.loss_fn_outputs), "path": path, "after": after,
        "rank": info.lora_rank, "model": info.model_name,
    }  # fmt: skip


def reinforced(url: str, key: str) -> dict[str, Any]:
    """Samples from what it trains, and trains on what it sampled."""
    service = tinker.ServiceClient(base_url=url, api_key=key)
    training = service.create_lora_training_client(base_model="toy", rank=4).result()
    sampler = training.save_weights_and_get_sampling_client()
    sampler = sampler.result() if hasattr(sampler, "result") else sampler
    prompt = types.ModelInput.from_ints([1, 2, 3])
    params = types.SamplingParams(max_tokens=5, stop=[7], temperature=1.0)
    answer = sampler.sample(prompt=prompt, num_samples=2, sampling_params=params).result()
    tokens = [list(one.tokens) for one in answer.sequences]
    rows = [
        types.Datum(
            model_input=types.ModelInput.from_ints(one),
            loss_fn_inputs={
                "target_tokens": one, "logprobs": [0.0] * len(one), "advantages": [1.0] * len(one),
            },
        )
        for one in tokens
    ]  # fmt: skip
    training.forward_backward(rows, "importance_sampling").result()
    step = training.optim_step(types.AdamParams()).result().metrics["step:max"]
    logprobs = sampler.compute_logprobs(prompt).result()
    named = training.save_weights_for_sampler("final").result().path
    other = service.create_sampling_client(model_path=named)
    other = other.result() if hasattr(other, "result") else other
    base = other.get_base_model()
    return {"tokens": tokens, "step": step, "logprobs": logprobs, "base": base, "named": named}


async def test_a_supervised_loop(front: Front) -> None:
    found = await in_a_thread(supervised, front)
    assert found["steps"] == [1.0, 2.0, 3.0]
    assert (found["many"], found["after"]) == (2500, 4.0)
    assert (found["rank"], found["model"]) == (8, "toy")
    assert found["path"].endswith(":train:0/weights/end")


async def test_a_loop_of_reinforcement(front: Front) -> None:
    found = await in_a_thread(reinforced, front)
    assert found["tokens"] == [[3] * 5] * 2
    assert (found["step"], found["base"]) == (1.0, "toy")
    assert found["logprobs"] == [None, 0.0, 0.0]
    assert found["named"].endswith(":train:0/sampler_weights/final")


async def test_an_older_release_in_json(front: Front) -> None:
    """Its bodies and results are JSON, or binary results where it takes them."""
    folder = await asyncio.to_thread(_older)
    program = Path(__file__).with_name("older_sdk.py")
    environment = os.environ | {
        "PYTHONPATH": str(folder), "TINKER_API_KEY": "tml-" + front.owner_key,
        "TINKER_BASE_URL": front.url, "TINKER_TELEMETRY": "0",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", str(program), env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, said.decode()[-3000:]
    assert said.decode().splitlines()[-1] == f"{OLDER} 1.0 [[3, 3]] [None, 0.0, 0.0] 3"


def _older() -> Path:
    """The folder of an older release, beside what this one needs."""

    def download(folder: Path) -> None:
        wanted = ("install", "--no-deps", "--target", str(folder), f"tinker=={OLDER}")
        subprocess.run([*_PIP, *wanted], check=True, capture_output=True, timeout=240)

    try:
        return made_once.once("tinker-sdk", OLDER, download)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        required.lacking(f"tinker {OLDER} cannot be had: {error.stderr!r}")
