"""TorchTune's recipes with a report of their progress, their configuration and their checkpoints.

It imports `protocol` and the modules of `trainers`, not `trl`.
"""
