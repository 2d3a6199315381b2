"""Refusals of versions, each with a stable reason."""

from typing import Literal, TypeAlias

RefusalReason: TypeAlias = Literal[
    "invalid_manifest",
    "unknown_version",
    "version_exists",
    "wrong_base",
    "wrong_parent",
    "wrong_tensor",
    "damaged_content",
    "oversized_content",
    "medium_in_use",
]


class WeightsRefused(Exception):
    """A version that is not put in place; `reason` is stable, the message is for people."""

    def __init__(self, reason: RefusalReason, message: str):
        super().__init__(message)
        self.reason = reason


class WeightsTorn(Exception):
    """Weights that are neither the old version nor the new one: nothing may answer from them."""
