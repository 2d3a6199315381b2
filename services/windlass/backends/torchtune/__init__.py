"""Owns training by TorchTune: its recipes, what a job may set, and the command's argument.

May import what backends have in common; not TRL.
"""

from windlass.backends.torchtune.config import TorchTuneConfig

__all__ = ["TorchTuneConfig"]
