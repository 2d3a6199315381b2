"""A loop as it was written for an older release of the tinker SDK; prints what it saw."""

from importlib import import_module
from typing import Any

tinker: Any = import_module("tinker")
types: Any = tinker.types

service = tinker.ServiceClient()
training = service.create_lora_training_client(base_model="toy", rank=8)
prompt = types.ModelInput.from_ints([1, 2, 3])
datum = types.Datum(
    model_input=prompt,
    loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [0.0, 1.0, 1.0]},
)
training.forward_backward([datum], "cross_entropy").result()
step = training.optim_step(types.AdamParams()).result().metrics["step:max"]
evaluated = training.forward([datum] * 3, "cross_entropy").result()
sampler = training.save_weights_and_get_sampling_client("s")
params = types.SamplingParams(max_tokens=2)
answer = sampler.sample(prompt, 1, params).result()
tokens = [list(one.tokens) for one in answer.sequences]
logprobs = sampler.compute_logprobs(prompt).result()
print(tinker.__version__, step, tokens, list(logprobs), len(evaluated.loss_fn_outputs))
