"""Code that runs in a trainer's process: `trl`, `torchtune`, and modules that both use.

It may import torch, and of the other rooms `protocol` alone.
"""
