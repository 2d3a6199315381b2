"""Sampling from what was exported, which stays still while training moves."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.endings import RunClosed
from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import ComputeLoss, Example, ExportAdapter
from windlass_agent.tuning.requests.prompts import Continuations, PromptRequest
from windlass_agent.tuning.requests.refusal import TuningRefused

PROMPT = np.array([3, 14, 15, 92, 65], np.int64)
SAMPLED = PromptRequest(
    tokens=PROMPT, count=3, max_tokens=24, seed=5, prompt_logprobs=True, ranked_tokens=2
)


def opened(limits: TuningLimits | None = None) -> TuningEngine:
    engine = make.engine(limits)
    engine.open("run", make.spec())
    learn(engine, 1)
    return engine


def learn(engine: TuningEngine, draw: int) -> None:
    make.losses(engine, "run", make.learning(make.example(draw)))
    make.stepped(engine, "run")


def exported(engine: TuningEngine, folder: Path) -> Path:
    make.finished(engine, [engine.submit("run", ExportAdapter(folder))])
    return folder


def sampled(engine: TuningEngine, request: PromptRequest) -> Continuations:
    (result,) = make.finished(engine, [engine.sample(request)])
    assert isinstance(result, Continuations)
    return result


def test_a_pinned_sampler_stays_still_while_training_moves(tmp_path: Path) -> None:
    engine = opened()
    pinned = replace(SAMPLED, adapter=exported(engine, tmp_path / "one"))
    before = sampled(engine, pinned)
    learn(engine, 2)
    assert sampled(engine, pinned) == before
    later = replace(SAMPLED, adapter=exported(engine, tmp_path / "two"))
    assert sampled(engine, later) != before
    # Also in the middle of it: turns of sampling and passes alternate.
    future = engine.sample(pinned)
    while not future.done():
        engine.submit("run", make.learning(make.example(3)))
        engine.submit("run", make.STEP)
        engine.advance()
    assert future.result(timeout=0) == before


def test_a_folder_that_holds_another_adapter_now_is_read_again(tmp_path: Path) -> None:
    engine = opened()
    folder = exported(engine, tmp_path / "one")
    before = sampled(engine, replace(SAMPLED, adapter=folder))
    shutil.rmtree(folder)
    learn(engine, 2)
    exported(engine, folder)
    assert sampled(engine, replace(SAMPLED, adapter=folder)) != before


def test_a_seed_gives_the_same_continuations_and_another_others() -> None:
    engine = opened()
    one = sampled(engine, SAMPLED)
    assert sampled(engine, SAMPLED) == one
    assert sampled(engine, replace(SAMPLED, seed=6)) != one
    rows = [row.tokens for row in one.sequences]
    assert len({tuple(row) for row in rows}) == 3


def test_logprobs_are_those_of_training(tmp_path: Path) -> None:
    engine = opened()
    folder = exported(engine, tmp_path / "one")
    result = sampled(engine, replace(SAMPLED, adapter=folder, ranked_prompt=2))
    row = result.sequences[0]
    tokens = np.array([*PROMPT, *row.tokens], np.int64)
    ones = np.ones(len(tokens) - 1, np.float32)
    whole = Example(tokens=tokens[:-1], inputs={"target_tokens": tokens[1:], "weights": ones})
    (scored,) = make.losses(
        engine, "run", ComputeLoss(examples=(whole,), loss="cross_entropy", learns=False)
    )
    reported = [*result.prompt_logprobs, *row.logprobs]
    assert np.abs(scored.logprobs[0] - np.array(reported)).max() < 1e-4
    base = sampled(engine, SAMPLED)
    assert np.abs(np.array(base.prompt_logprobs) - np.array(result.prompt_logprobs)).max() > 1e-4
    assert [len(place) for place in result.ranked_prompt] == [2] * (len(PROMPT) - 1)
    assert [len(place) for place in row.ranked] == [2] * len(row.tokens)
    for token, logprob, (best, second) in zip(row.tokens, row.logprobs, row.ranked, strict=True):
        assert best[1] >= second[1]
        assert logprob <= best[1]
        assert (token == best[0]) == (logprob == best[1])


def test_without_temperature_the_likeliest_follows() -> None:
    engine = opened()
    network = make.network()
    result = sampled(engine, replace(SAMPLED, temperature=0.0, count=1))
    ids = torch.from_numpy(PROMPT)[None]
    for token in result.sequences[0].tokens:
        assert int(network(input_ids=ids).logits[0, -1].argmax()) == token
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)


def test_top_k_of_one_and_a_small_top_p_leave_the_likeliest() -> None:
    engine = opened()
    greedy = sampled(engine, replace(SAMPLED, temperature=0.0)).sequences
    for narrow in (replace(SAMPLED, top_k=1), replace(SAMPLED, top_p=1e-6)):
        assert [row.tokens for row in sampled(engine, narrow).sequences] == [
            row.tokens for row in greedy
        ]
    wide = sampled(engine, replace(SAMPLED, top_k=50, top_p=0.99)).sequences
    assert [row.tokens for row in wide] != [row.tokens for row in greedy]


def test_a_stop_ends_one_row_and_not_its_neighbours() -> None:
    engine = opened()
    free = sampled(engine, SAMPLED).sequences
    stop = free[0].tokens[4]
    held = sampled(engine, replace(SAMPLED, stop_tokens=frozenset((stop,)))).sequences
    assert held[0].stopped
    assert held[0].tokens == free[0].tokens[: free[0].tokens.index(stop) + 1]
    for ours, theirs in zip(held, free, strict=True):
        assert ours.tokens == theirs.tokens[: len(ours.tokens)]
        assert ours.stopped == (stop in theirs.tokens)


def test_a_stop_of_characters_ends_with_the_tokens_that_completed_it() -> None:
    engine = TuningEngine(
        make.base(), TuningLimits(), decode=lambda ids: "".join(chr(32 + one) for one in ids)
    )
    free = sampled(engine, replace(SAMPLED, count=1)).sequences[0].tokens
    stop = "".join(chr(32 + one) for one in free[6:9])
    held = sampled(engine, replace(SAMPLED, count=1, stop_strings=("no such", stop))).sequences[0]
    assert held.tokens == free[:9]
    assert held.stopped


def test_prompts_of_projects_take_turns() -> None:
    engine = opened()
    many = [engine.sample(replace(SAMPLED, project="greedy")) for _ in range(20)]
    engine.advance()
    own = engine.sample(replace(SAMPLED, project="modest"))
    while not own.done():
        engine.advance()
    assert sum(future.done() for future in many) <= 2
    make.drive(engine)
    assert all(future.done() for future in many)


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("wrong_shape", {"tokens": np.zeros(0, np.int64)}),
        ("wrong_shape", {"tokens": np.zeros(3, np.float32)}),
        ("unknown_token", {"tokens": np.array([make.VOCABULARY])}),
        ("unknown_token", {"tokens": np.array([-1])}),
        ("too_long", {"max_tokens": make.CONTEXT}),
        ("out_of_bounds", {"count": 65}),
        ("out_of_bounds", {"count": 0}),
        ("out_of_bounds", {"ranked_tokens": 65}),
        ("out_of_bounds", {"max_tokens": -1}),
        ("out_of_bounds", {"stop_tokens": frozenset(range(33))}),
        ("out_of_bounds", {"stop_strings": ("",)}),
        ("invalid_setting", {"temperature": math.nan}),
        ("invalid_setting", {"temperature": -1.0}),
        ("invalid_setting", {"top_p": 0.0}),
        ("invalid_setting", {"top_k": 0}),
        ("invalid_setting", {"seed": 2**64}),
        ("no_tokenizer", {"stop_strings": ("x",)}),
        ("queue_full", {}),
    ],
)
def test_a_bad_prompt_is_refused(reason: str, change: dict[str, Any]) -> None:
    engine = opened(TuningLimits(queued_prompts=0 if reason == "queue_full" else 1))
    with pytest.raises(TuningRefused) as refused:
        engine.sample(replace(SAMPLED, **change))
    assert refused.value.reason == reason


def test_an_adapter_that_is_not_there_or_of_another_base_ends_the_prompt(tmp_path: Path) -> None:
    engine = opened()
    folder = exported(engine, tmp_path / "one")
    config = (folder / "adapter_config.json").read_text()
    (folder / "adapter_config.json").write_text(config.replace(make.IDENTITY, "sha256:other"))
    missing = engine.sample(replace(SAMPLED, adapter=tmp_path / "none"))
    foreign = engine.sample(replace(SAMPLED, adapter=folder))
    make.drive(engine)
    reasons = [one.exception(timeout=0).reason for one in (missing, foreign)]  # type: ignore[union-attr]  # both are refused
    assert reasons == ["state_not_found", "foreign_base"]


def test_a_stopped_engine_ends_everything() -> None:
    engine = opened()
    waiting = [
        engine.sample(SAMPLED),
        engine.submit("run", make.STEP),
        engine.submit("run", make.learning(make.example(1))),
    ]
    engine.stop()
    assert [type(future.exception(timeout=0)) for future in waiting] == [RunClosed] * 3
    assert engine.names() == []
