"""Samples of tuning sessions on engines that the operator runs, in the place of the trainer.

May import the port of trainers, the routes and errors of engines, and the kernel. docs/adr/0090.
"""

from windlass.tuning.samplers.chosen import ChosenSampler

__all__ = ["ChosenSampler"]
