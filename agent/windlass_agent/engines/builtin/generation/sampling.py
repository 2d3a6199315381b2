"""Sampling of tokens from logits."""

from collections.abc import Sequence as Rows

import torch

from windlass_agent.engines.builtin.generation.sequence import Sequence, Token

# JSON has no infinity; what OpenAI reports for a token out of reach.
LOWEST = -9999.0


def choose(logits: torch.Tensor, sequences: Rows[Sequence]) -> list[Token]:
    """The next token of each sequence; row i of `logits` is that of sequence i."""
    if all(_plain(sequence) for sequence in sequences):
        return [Token(int(token)) for token in logits.argmax(-1).tolist()]
    rows = logits.float()
    return [_choose_one(rows[row], sequence) for row, sequence in enumerate(sequences)]


def score(logits: torch.Tensor, tokens: Rows[int], *, top: int) -> list[Token]:
    """Given tokens with the log-probabilities that the rows of `logits` give them."""
    logprobs = torch.log_softmax(logits.float(), -1)
    return [_report(row, token, top) for row, token in zip(logprobs, tokens, strict=True)]


def _plain(sequence: Sequence) -> bool:
    params = sequence.params
    return (
        sequence.constraint is None
        and params.temperature == 0
        and params.logprobs is None
        and not params.logit_bias
        and not params.presence_penalty
        and not params.frequency_penalty
        and len(sequence.generated) >= params.min_tokens
    )


def _choose_one(raw: torch.Tensor, sequence: Sequence) -> Token:
    token = _sample(_adjust(raw.clone(), sequence), sequence)
    top = sequence.params.logprobs
    return Token(token) if top is None else _report(torch.log_softmax(raw, -1), token, top)


def _adjust(row: torch.Tensor, sequence: Sequence) -> torch.Tensor:
    params = sequence.params
    if sequence.counts and (params.presence_penalty or params.frequency_penalty):
        ids = torch.tensor(list(sequence.counts), device=row.device)
        counts = torch.tensor(list(sequence.counts.values()), device=row.device)
        row[ids] -= params.frequency_penalty * counts + params.presence_penalty
    for token, bias in params.logit_bias:
        row[token] += bias
    if len(sequence.generated) < params.min_tokens and sequence.eos:
        row[list(sequence.eos)] = -torch.inf
    if sequence.constraint is not None:
        sequence.constraint.restrict(row)
    return row


def _sample(row: torch.Tensor, sequence: Sequence) -> int:
    params = sequence.params
    if params.temperature == 0:
        return int(row.argmax())
    # The greatest becomes 0 first, so that no temperature is too low to divide by.
    row = (row - row.max()) / params.temperature
    if 0 < params.top_k < row.numel():
        row[row < row.topk(params.top_k).values[-1]] = -torch.inf
    probabilities = row.softmax(-1)
    if params.top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        beyond = ordered.cumsum(-1) - ordered > params.top_p
        probabilities[order[beyond]] = 0
    return int(torch.multinomial(probabilities, 1, generator=sequence.generator))


def _report(logprobs: torch.Tensor, token: int, top: int) -> Token:
    best = logprobs.topk(min(top, logprobs.numel()))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return Token(
        token,
        max(float(logprobs[token]), LOWEST),
        tuple((int(other), max(value, LOWEST)) for other, value in pairs),
    )
