"""Constraint on the tokens of one sequence."""

import torch
from llguidance import LLMatcher


class Constraint:
    """A matcher of one sequence; the scheduler's thread alone touches it.

    A matcher that runs out of its budget sets `failed` and then allows every token, so that the
    rest of the batch goes on; the sequence is ended with an error.
    """

    def __init__(self, matcher: LLMatcher):
        self._matcher = matcher

    @property
    def failed(self) -> bool:
        """True if the grammar needed more work for a token than it is allowed."""
        return bool(self._matcher.is_error())

    @property
    def complete(self) -> bool:
        """True if nothing but the end can follow."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> "Constraint":
        """A constraint for another sequence, at the same place."""
        return Constraint(self._matcher.deep_copy())

    def restrict(self, logits: torch.Tensor) -> None:
        """Sets the logits [vocabulary] of all tokens that must not come next to -inf."""
        # A byte for each token: 0 for those that must not come.
        allowed = self._matcher.compute_logit_bias()
        if not self._matcher.is_error():
            bias = torch.frombuffer(bytearray(allowed), dtype=torch.uint8).to(logits.device)
            logits[: len(bias)].masked_fill_(bias == 0, -torch.inf)
            logits[len(bias) :] = -torch.inf

    def accept(self, token: int) -> None:
        """Goes on to what may follow `token`."""
        self._matcher.consume_token(token)
