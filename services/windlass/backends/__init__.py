"""Training backends: each turns a typed configuration into the command of a trainer."""

from windlass.backends.backend import InvalidConfig, LLMBackend, RenderContext, Sizing
from windlass.backends.registry import (
    BackendError,
    get_backend,
    get_registered_backends,
    register_backend,
)

__all__ = [
    "BackendError",
    "InvalidConfig",
    "LLMBackend",
    "RenderContext",
    "Sizing",
    "get_backend",
    "get_registered_backends",
    "register_backend",
]
