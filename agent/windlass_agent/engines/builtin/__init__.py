"""The built-in engine: a small torch + transformers + PEFT server of OpenAI's routes.

One thread (`generation/scheduler.py`) owns the model and decodes all sequences together, one
token a tick, in a `lane` per adapter; the event loop (`api`) validates, tokenizes and writes.
`service.py` is between them.

It may import torch, the kernel, `windlass.inference_api`, `windlass.modelfiles` and
`windlass.weight_versions`; nothing else of the agent.
"""
