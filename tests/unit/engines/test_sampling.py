import asyncio
from collections import Counter
from typing import Any

import pytest
import torch

from windlass.inference_api.requests import SamplingParams
from windlass_agent.engines.builtin.generation.sampling import choose
from windlass_agent.engines.builtin.generation.sequence import Sequence
from windlass_agent.engines.builtin.text.detokenize import Detokenizer

pytestmark = pytest.mark.torch

LOGITS = torch.tensor([3.0, 2.0, 1.0, 0.0])


def _sequence(*, said: tuple[int, ...] = (), **params: Any) -> Sequence:
    return Sequence(
        prompt=[0],
        params=SamplingParams(max_tokens=99, **params),
        index=0,
        adapter=None,
        eos=frozenset({0}),
        detokenizer=Detokenizer(str),
        sink=asyncio.Queue(),
        generator=torch.Generator().manual_seed(3),
        generated=list(said),
        counts=Counter(said),
    )


def _drawn(**params: Any) -> dict[int, float]:
    sequence = _sequence(**params)
    drawn = Counter(choose(LOGITS.unsqueeze(0), [sequence])[0].id for _ in range(2000))
    return {token: count / 2000 for token, count in drawn.items()}


def test_temperature_draws_from_the_models_distribution() -> None:
    for temperature in (1.0, 0.5):
        expected = torch.softmax(LOGITS / temperature, -1).tolist()
        drawn = _drawn(temperature=temperature)
        assert [drawn.get(token, 0) for token in range(4)] == pytest.approx(expected, abs=0.04)
    assert _drawn(temperature=1e-9) == {0: 1.0}


def test_top_k_and_top_p_cut_the_tail() -> None:
    assert set(_drawn(top_k=2)) == {0, 1}
    # The first two hold 0.88 of the mass: 0.6 is reached by the first, 0.7 needs both.
    assert set(_drawn(top_p=0.6)) == {0}
    assert set(_drawn(top_p=0.7)) == {0, 1}


def test_what_was_said_counts_against_a_token() -> None:
    def best(**params: Any) -> int:
        return choose(LOGITS.unsqueeze(0), [_sequence(temperature=0, **params)])[0].id

    assert best(said=(0, 0)) == 0
    assert best(said=(0, 0), presence_penalty=1.5) == 1
    assert best(said=(0, 0), frequency_penalty=0.4) == 0
    assert best(said=(0, 0), frequency_penalty=0.6) == 1
    assert best(logit_bias=((3, 100.0),)) == 3
    assert best(min_tokens=1) == 1


def test_rows_of_one_batch_keep_to_their_own_parameters() -> None:
    rows = [_sequence(temperature=0), _sequence(temperature=0, logit_bias=((2, 50.0),), logprobs=1)]
    first, second = choose(torch.stack([LOGITS, LOGITS]), rows)
    assert (first.id, first.logprob) == (0, None)
    expected = torch.log_softmax(LOGITS, -1)
    assert (second.id, second.top[0][0]) == (2, 0)
    given = [second.logprob, second.top[0][1]]
    assert given == pytest.approx([float(expected[2]), float(expected[0])])


def test_more_alternatives_than_there_are_tokens_are_all_of_them() -> None:
    (token,) = choose(LOGITS.unsqueeze(0), [_sequence(logprobs=20)])
    assert len(token.top) == len(LOGITS)
