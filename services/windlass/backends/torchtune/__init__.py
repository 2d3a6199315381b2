"""Owns training by TorchTune: its recipes, what a job may set, and the command's argument.

May import what backends have in common, and TRL's document, whose bounds it shares.
"""

from windlass.backends.torchtune.config import TorchTuneConfig

__all__ = ["TorchTuneConfig"]
