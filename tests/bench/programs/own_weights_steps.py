"""Run by vLLM's interpreter: steps of the plugin's own loop on weights of its own.

`python own_weights_steps.py MODEL STEPS`: prints the seconds of each step, as JSON.
"""

import json
import os
import sys
import time

import torch
from tests.support.engine_training.lessons import TAUGHT, samples
from transformers import AutoModelForCausalLM

from windlass_vllm.messages import TokenSample
from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.settings import apollo_mini
from windlass_vllm.training.loss import continuation_loss
from windlass_vllm.training.step_loss import batches


def main() -> None:
    os.nice(10)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).train()
    optimizer = InBackwardOptimizer(model.named_parameters(), apollo_mini(0.003))
    asked = [
        TokenSample(tuple(one["context_ids"]), tuple(one["continuation_ids"]))
        for one in samples(TAUGHT)
    ]
    seconds = []
    for _, step in zip(range(int(sys.argv[2])), batches(len(asked), 1, 100_000), strict=False):
        began = time.perf_counter()
        optimizer.backward(continuation_loss(model, asked[step], "cpu"))
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
