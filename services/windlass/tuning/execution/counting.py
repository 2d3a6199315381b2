"""Counts what operations took, as the usage service sums it; pure."""

from windlass.api.usage.v1 import usage_pb2
from windlass.tuning.storage.outcomes import Spent
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    ForwardBackward,
    OptimStep,
    Outcome,
    SampleRequest,
    Samples,
    Stepped,
)

_TOKEN_BYTES = 4


def spent_on(wish: ForwardBackward | OptimStep, outcome: Outcome) -> Spent | None:
    """Tokens and time of a computation; those of losses with gradients went backward too.

    A step has no tokens. Returns None for what was refused.
    """
    if isinstance(wish, ForwardBackward) and isinstance(outcome, BatchLosses):
        kind = usage_pb2.USAGE_KIND_TRAINING
        if wish.is_forward_only:
            kind = usage_pb2.USAGE_KIND_FORWARD
        tokens = sum(datum.tokens.shape[0] for datum in wish.data)
        return Spent(kind, tokens, 0, outcome.device_seconds)
    if isinstance(outcome, Stepped):
        return Spent(usage_pb2.USAGE_KIND_TRAINING, 0, 0, outcome.device_seconds)
    return None


def spent_on_samples(wish: SampleRequest, samples: Samples) -> Spent:
    """Tokens and time of continuations: the prompt once, and every token that was sampled."""
    sampled = sum(len(one.tokens) for one in samples.sequences) // _TOKEN_BYTES
    prompt = wish.prompt.shape[0]
    return Spent(usage_pb2.USAGE_KIND_SAMPLE, prompt, sampled, samples.device_seconds)
