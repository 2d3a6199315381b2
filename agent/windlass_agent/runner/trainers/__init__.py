"""What runs in the process of a trainer: TRL in `trl`, TorchTune in `torchtune`, the rest for both.

It may import torch, and of the other rooms `protocol` alone.
"""
