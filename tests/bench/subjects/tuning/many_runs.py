"""Eight tenants' steps in one pass: beside one tenant after another, and beside SkyRL.

SkyRL 0.3.0's JAX backend is the one peer that takes adapters of mixed ranks in a pass. It runs in
an environment of its own (6.6 GB), with the same base model, ranks and sequences, on one core.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import PROGRAMS
from tests.support.environments import made_once
from transformers import LlamaConfig, LlamaForCausalLM

from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import (
    AdapterSpec,
    ComputeLoss,
    Example,
    RunSpec,
    StepOptimizer,
)

RANKS = (1, 2, 4, 8, 8, 16, 32, 64)
VOCABULARY, TOKENS = 2048, 32
GOAL, PEER_GOAL = 1.2, 0.6
PEER = ("skyrl[jax]==0.3.0", "typing_extensions")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


async def measure(options: Options) -> list[Figure]:
    """Whole steps, and their losses and gradients alone: medians of pairs, on one thread."""
    rounds = 3 if options.quick else 15
    network = _network()
    with tempfile.TemporaryDirectory() as folder:
        theirs = _skyrl(network, Path(folder), rounds)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        engine = _engine(network)
        step, losses = _pairs(engine, rounds, steps=True), _pairs(engine, rounds, steps=False)
    finally:
        torch.set_num_threads(before)
    ours = 1000 * statistics.median(together for together, _ in step)
    beside = plain("many_runs_step", ours, "ms of CPU").beside("SkyRL's JAX backend", theirs)
    return [
        _figure("many_runs", step).at_least_times(GOAL),
        _figure("many_runs_losses", losses),
        beside.at_most_times(PEER_GOAL),
    ]


def _skyrl(network: LlamaForCausalLM, folder: Path, rounds: int) -> float:
    """Milliseconds of processor time that a step of everybody takes there; the median."""
    network.save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copy(made_once.tiny_model() / name, folder)
    python = made_once.environment("skyrl-env", *PEER) / "python"
    program = str(PROGRAMS / "skyrl_steps.py")
    command = [str(python), program, str(folder), str(rounds), *map(str, RANKS)]
    one = min(os.sched_getaffinity(0))
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "JAX_PLATFORMS": "cpu"},
        preexec_fn=lambda: os.sched_setaffinity(0, {one}),
    )
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return 1000 * statistics.median(seconds)


def _figure(name: str, pairs: list[tuple[float, float]]) -> Figure:
    together, in_turn = (statistics.median(one) for one in zip(*pairs, strict=True))
    tokens = len(RANKS) * TOKENS
    figure = plain(name, tokens / together, "tokens/s of CPU")
    return figure.beside("the same, one after another", tokens / in_turn)


def _pairs(engine: TuningEngine, rounds: int, *, steps: bool) -> list[tuple[float, float]]:
    for _ in range(2):
        _seconds(engine, in_turn=False, steps=steps)
    return [
        (
            _seconds(engine, in_turn=False, steps=steps),
            _seconds(engine, in_turn=True, steps=steps),
        )
        for _ in range(rounds)
    ]


def _network() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=512,
            intermediate_size=1024,
            num_hidden_layers=6,
            num_attention_heads=16,
            num_key_value_heads=8,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def _engine(network: LlamaForCausalLM) -> TuningEngine:
    engine = TuningEngine(BaseNetwork.fit(network, "bench"), TuningLimits())
    for place, rank in enumerate(RANKS):
        adapter = AdapterSpec(rank=rank, seed=place)
        engine.open(str(place), RunSpec(project=str(place), adapter=adapter))
    return engine


def _seconds(engine: TuningEngine, *, in_turn: bool, steps: bool) -> float:
    """Processor time of everybody's operations, at once or each tenant's before the next asks."""
    began = time.process_time()
    for place in range(len(RANKS)):
        _ask(engine, place, steps=steps)
        while in_turn and engine.advance():
            pass
    while engine.advance():
        pass
    return time.process_time() - began


def _ask(engine: TuningEngine, place: int, *, steps: bool) -> None:
    tokens = np.random.default_rng(place).integers(0, VOCABULARY, TOKENS + 1)
    weights = np.ones(TOKENS, np.float32)
    example = Example(tokens=tokens[:-1], inputs={"target_tokens": tokens[1:], "weights": weights})
    engine.submit(str(place), ComputeLoss(examples=(example,), loss="cross_entropy"))
    if steps:
        engine.submit(str(place), StepOptimizer())
