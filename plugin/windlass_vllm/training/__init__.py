"""Process that trains the weights of an engine: a model of views, a loss, and its loop.

It imports `run_folder`, `messages`, `checkpoints`, `losses`, `optimizers`, `weights` and
`refusal`; torch, transformers, safetensors and zmq.
"""
