"""OpenAI's reinforcement method as TRL's GRPO or RLOO: documents and arguments."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.test_trl import GRADER

from windlass.backends import InvalidConfig, RenderContext, Sizing, TRLConfig

CONTEXT = RenderContext(
    model=Path("/run/model"),
    dataset=Path("/run/data"),
    output=Path("/run/out"),
    device="cpu",
    has_validation=True,
)


def made(
    hyperparameters: dict[str, Any] | None = None,
    *,
    method: str = "reinforcement",
    model_bytes: int = 1_000_000_000,
    **extra: Any,
) -> TRLConfig:
    return TRLConfig.from_openai(
        method=method,
        hyperparameters=hyperparameters or {},
        seed=7,
        sizing=Sizing(examples=128, model_bytes=model_bytes),
        extra=extra,
        grader=GRADER,
    )


def flags(config: TRLConfig) -> dict[str, str]:
    args = config.to_args(CONTEXT)
    return dict(zip(args[::2], args[1::2], strict=True))


def test_the_rewards_of_a_job_are_its_graders_alone() -> None:
    config = made()
    assert config.grader == GRADER
    given = flags(config)
    assert given["--reward_funcs"] == "windlass_agent.runner.grading.rewards.graded"
    assert "--grader" not in given
    assert config.dataset_format == "reinforcement"
    assert config.to_command(CONTEXT)[1:] == (
        "-m",
        "windlass_agent.runner.trainers.trl.entry",
        "grpo",
    )


@pytest.mark.parametrize("method", ["reinforcement", "rloo"])
def test_a_document_is_read_as_it_was_written(method: str) -> None:
    config = made({"eval_interval": 5}, method=method, temperature=0.7, beta=0.0)
    assert TRLConfig.from_document(config.to_document(), 1) == config


def test_a_batch_is_prompts_and_each_has_its_answers() -> None:
    config = made({"batch_size": 6, "compute_multiplier": 2})
    answers = config.per_device_train_batch_size * config.gradient_accumulation_steps
    assert answers == 6 * 16
    assert flags(config)["--num_generations"] == "16"


@pytest.mark.parametrize(
    ("multiplier", "generations"), [("auto", 8), (None, 8), (0.1, 2), (0.5, 4), (8, 64)]
)
def test_compute_buys_answers(multiplier: Any, generations: int) -> None:
    config = made({"batch_size": 1, "compute_multiplier": multiplier})
    assert flags(config)["--num_generations"] == str(generations)


def test_evaluations_are_whole_groups_at_their_interval() -> None:
    given = flags(made({"eval_samples": 2, "eval_interval": 10}))
    assert (given["--eval_strategy"], given["--eval_steps"]) == ("steps", "10")
    assert (given["--num_generations_eval"], given["--per_device_eval_batch_size"]) == ("2", "2")
    given = flags(made())
    assert (given["--eval_strategy"], given["--per_device_eval_batch_size"]) == ("epoch", "8")
    assert "--num_generations_eval" not in given


def test_a_method_has_the_rate_of_its_own() -> None:
    rate = made(model_bytes=14_000_000_000).learning_rate
    assert rate == 2e-5
    assert made({"learning_rate_multiplier": 3}, model_bytes=14_000_000_000).learning_rate == 6e-5


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"hyperparameters": {"beta": 0.1}}, "method.reinforcement.hyperparameters.beta"),
        (
            {"hyperparameters": {"compute_multiplier": 0}},
            "method.reinforcement.hyperparameters.compute_multiplier",
        ),
        (
            {"hyperparameters": {"reasoning_effort": "low"}},
            "method.reinforcement.hyperparameters.reasoning_effort",
        ),
        (
            {"hyperparameters": {"batch_size": 256}, "model_bytes": 40_000_000_000},
            "method.reinforcement.hyperparameters.batch_size",
        ),
        ({"method": "rloo", "max_length": 64}, "windlass.config.max_length"),
        ({"packing": True}, "windlass.config.packing"),
        ({"num_generations": 4}, "windlass.config.num_generations"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_its_field(
    arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        made(arguments.pop("hyperparameters", None), **arguments)
    assert refused.value.field == field


def test_nothing_is_learned_without_a_grader() -> None:
    document = {name: value for name, value in made().to_document().items() if name != "grader"}
    with pytest.raises(InvalidConfig, match="it rewards an answer"):
        TRLConfig.from_document(document, 1)
