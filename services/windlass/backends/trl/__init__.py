"""Owns training by TRL: what a job may set, what is stored of it, and the command's flags.

May import what backends have in common; not TorchTune.
"""

from windlass.backends.trl.config import TRLConfig

__all__ = ["TRLConfig"]
