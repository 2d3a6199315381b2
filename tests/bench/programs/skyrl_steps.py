"""Trains adapters of several ranks in SkyRL's JAX backend: `skyrl_steps.py MODEL ROUNDS RANK...`.

Each round is a step of each adapter, whose losses share one pass. Prints the processor seconds of
each as a JSON list. It runs in an environment of its own, where Windlass is not installed.
"""

import json
import sys
import time
import typing

import typing_extensions

# pydantic wants it before Python 3.12.
typing.TypedDict = typing_extensions.TypedDict

import numpy as np  # noqa: E402
from skyrl.backends.jax import JaxBackend, JaxBackendConfig  # noqa: E402
from skyrl.tinker import types  # noqa: E402

VOCABULARY, TOKENS, WARM = 2048, 32, 2
ADAM = types.AdamParams(learning_rate=1e-4, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0)


def batch(count: int) -> types.PreparedModelPassBatch:
    """One sequence of each adapter."""
    rows = [
        np.random.default_rng(place).integers(0, VOCABULARY, TOKENS + 1).tolist()
        for place in range(count)
    ]
    ones, none = [1.0] * TOKENS, [0.0] * TOKENS
    names = [str(place) for place in range(count)]
    return types.PreparedModelPassBatch(
        all_model_inputs=[
            types.ModelInput(chunks=[types.EncodedTextChunk(tokens=row[:-1])]) for row in rows
        ],
        all_targets=[row[1:] for row in rows],
        all_token_weights=[ones] * count,
        all_sampling_logprobs=[none] * count,
        all_advantages=[none] * count,
        all_values=[[] for _ in rows],
        all_returns=[[] for _ in rows],
        all_model_ids=names,
        all_loss_fns=["cross_entropy"] * count,
        all_loss_fn_configs=[None] * count,
        request_batch_slices=[(name, name, at, at + 1) for at, name in enumerate(names)],
    )


def main(model: str, rounds: int, ranks: list[int]) -> list[float]:
    """Returns the processor seconds of each round, after some that compile."""
    config = JaxBackendConfig(max_lora_adapters=len(ranks) + 1, max_lora_rank=max(ranks))
    backend = JaxBackend(model, config)
    for place, rank in enumerate(ranks):
        lora = types.LoraConfig(rank=rank, alpha=32.0, seed=place, train_unembed=True)
        backend.create_model(str(place), lora)
    work, step, took = batch(len(ranks)), types.OptimStepInput(adam_params=ADAM), []
    for _ in range(WARM + rounds):
        began = time.process_time()
        backend.forward_backward(work)
        for place in range(len(ranks)):
            backend.optim_step(str(place), step)
        took.append(time.process_time() - began)
    return took[WARM:]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), [int(one) for one in sys.argv[3:]])))
