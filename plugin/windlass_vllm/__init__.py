"""Training in and beside a vLLM engine, installed in the engine's environment.

`engine` is what vLLM loads into its processes, `api` its routes, `training` the process beside it;
they meet in `messages` and in `weights`. `optimizers` steps in the backward pass, `checkpoints`
writes what changed. It imports torch, safetensors, msgspec, xxhash and zmq; of Windlass nothing.
"""
