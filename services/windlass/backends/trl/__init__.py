"""Owns training by TRL: what a job may set, what is stored of it, and the command's flags.

May import what backends have in common; not TorchTune.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.backends.trl.config import TRLConfig

__all__ = ["TRLConfig"]


def __getattr__(name: str) -> Any:
    """Loads the backend when it is used: hyperparameters import `document` before it is there."""
    if name == "TRLConfig":
        from windlass.backends.trl.config import TRLConfig

        return TRLConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
