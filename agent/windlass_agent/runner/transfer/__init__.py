"""Files in and out of a job: inputs, its dataset as a trainer reads it, checkpoints, artifacts.

It imports `protocol` and `reporting`, never torch.
"""
