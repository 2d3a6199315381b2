"""Training of all parameters of one model for one run, in one process or in several together.

It takes losses, the rule of AdamW and the packed network from the engine of adapters, and puts in
their place what a run of its own needs: parameters that are stepped where they lie, states that
pass through memory tensor by tensor, and checkpoints that are models.

It imports torch, safetensors, the packages of the engine and `trainer`.
"""
