from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.backends import InvalidConfig, Sizing
from windlass.backends.hyperparameters import unresolved
from windlass.backends.trl.config import TRLConfig
from windlass.backends.trl.document import TRLTraining
from windlass.backends.trl.lora import Lora

TOY = Sizing(examples=136, model_bytes=2_900_000)
SEVEN_B = Sizing(examples=5_000, model_bytes=14_000_000_000)
sizings = st.builds(
    Sizing, examples=st.integers(1, 10_000_000), model_bytes=st.integers(1, 2_000_000_000_000)
)


def config(
    method: str = "supervised",
    hyperparameters: dict[str, Any] | None = None,
    extra: dict[str, Any] | None = None,
    *,
    sizing: Sizing = TOY,
    seed: int = 1,
) -> TRLTraining:
    backend = TRLConfig.from_openai(
        method=method,
        hyperparameters=hyperparameters or {},
        seed=seed,
        sizing=sizing,
        extra=extra or {},
    )
    return msgspec.convert(backend.to_document(), TRLTraining)


@pytest.mark.parametrize(
    ("method", "lora", "sizing", "epochs", "batch", "rate"),
    [
        ("supervised", True, TOY, 12, 8, 0.00595),
        ("supervised", False, TOY, 12, 8, 0.00139),
        ("supervised", True, SEVEN_B, 3, 16, 0.0002),
        ("supervised", False, SEVEN_B, 3, 16, 2e-5),
        ("dpo", True, TOY, 3, 8, 0.000151),
        ("dpo", False, TOY, 3, 8, 1.27e-5),
        ("dpo", True, SEVEN_B, 3, 16, 5e-5),
        ("kto", True, TOY, 3, 8, 0.000151),
        ("kto", True, Sizing(examples=10, model_bytes=14_000_000_000), 10, 2, 5e-5),
        ("orpo", True, SEVEN_B, 3, 16, 8e-5),
        ("reward", False, SEVEN_B, 3, 16, 1e-5),
        ("supervised", True, Sizing(examples=10, model_bytes=14_000_000_000), 5, 1, 0.0002),
        ("supervised", True, Sizing(examples=50_000, model_bytes=2 * 10**9), 1, 16, 0.000436),
    ],
)
def test_auto_follows_examples_and_model_size(
    method: str, lora: bool, sizing: Sizing, epochs: int, batch: int, rate: float
) -> None:
    made = config(method, extra={"lora": lora}, sizing=sizing)
    assert made.epochs == epochs
    assert made.batch_size * made.gradient_accumulation_steps == batch
    assert made.learning_rate == rate
    assert made.beta == (0.1 if method in ("dpo", "kto", "orpo") else None)


@given(sizings, st.sampled_from(["supervised", "dpo", "kto", "orpo", "reward"]), st.booleans())
def test_auto_is_always_trainable(sizing: Sizing, method: str, lora: bool) -> None:
    made = config(method, extra={"lora": lora}, sizing=sizing)
    assert 1 <= made.epochs <= 25
    assert made.epochs == 1 or made.epochs * sizing.examples <= 75_000
    assert (
        1
        <= made.batch_size * made.gradient_accumulation_steps
        <= max(2 if method == "kto" else 1, min(16, sizing.examples))
    )
    assert 0 < made.learning_rate <= 0.01


@given(st.sampled_from(["supervised", "dpo", "kto"]), st.floats(0.01, 100), sizings)
def test_a_multiplier_multiplies(method: str, multiplier: float, sizing: Sizing) -> None:
    rate = config(method, sizing=sizing).learning_rate
    asked = config(method, {"learning_rate_multiplier": multiplier}, sizing=sizing).learning_rate
    assert asked == pytest.approx(min(rate * multiplier, 1.0), rel=0.01)


@given(st.integers(2, 256), sizings)
def test_kto_has_two_answers_in_each_pass(batch: int, sizing: Sizing) -> None:
    made = config("kto", {"batch_size": batch}, sizing=sizing)
    assert made.batch_size >= 2
    assert made.batch_size * made.gradient_accumulation_steps == batch


@given(st.integers(1, 256), st.sampled_from([1, 2, 3, 8]), sizings)
def test_a_batch_is_split_without_loss(batch: int, nodes: int, sizing: Sizing) -> None:
    asked = partial(
        config,
        hyperparameters={"batch_size": batch},
        extra={"num_nodes": nodes},
        sizing=sizing,
    )
    if batch % nodes:
        with pytest.raises(InvalidConfig, match=f"must be a multiple of {nodes}, ") as caught:
            asked()
        assert caught.value.field == "method.supervised.hyperparameters.batch_size"
        return
    made = asked()
    assert made.batch_size * made.gradient_accumulation_steps * nodes == batch


@given(st.sampled_from(["supervised", "dpo", "kto"]), st.sampled_from([1, 2, 3, 8]), sizings)
def test_the_numbers_shown_are_those_that_are_trained_with(
    method: str, nodes: int, sizing: Sizing
) -> None:
    extra = {"num_nodes": nodes}
    made = config(method, extra=extra, sizing=sizing)
    shown = TRLConfig.numbers(method=method, hyperparameters={}, sizing=sizing, extra=extra)
    each = made.batch_size * made.gradient_accumulation_steps
    assert (shown["n_epochs"], shown["batch_size"]) == (made.epochs, each * nodes)
    assert shown["learning_rate_multiplier"] == 1
    assert shown.get("beta") == (0.1 if method == "dpo" else None)
    # Asked for as such, they make the same job.
    assert config(method, shown, extra, sizing=sizing) == made


def test_the_numbers_of_a_reinforcement_are_shown_by_openais_names() -> None:
    shown = TRLConfig.numbers(
        method="reinforcement",
        hyperparameters={"compute_multiplier": 0.5, "batch_size": 8},
        sizing=TOY,
        extra={},
    )
    assert shown == {
        "n_epochs": 3,
        "batch_size": 8,
        "learning_rate_multiplier": 1,
        "compute_multiplier": 0.5,
        "eval_interval": 17,
        "eval_samples": 4,
        "reasoning_effort": "default",
    }
    assert unresolved("dpo", {"n_epochs": 2, "beta": None}) == {
        "n_epochs": 2,
        "batch_size": "auto",
        "learning_rate_multiplier": "auto",
        "beta": "auto",
    }


def test_asked_values_win_over_auto() -> None:
    made = config(
        "dpo",
        {"n_epochs": 7, "batch_size": 12, "learning_rate_multiplier": 2, "beta": 0.5},
        sizing=SEVEN_B,
    )
    assert (made.epochs, made.learning_rate, made.beta) == (7, 1e-4, 0.5)
    assert (made.batch_size, made.gradient_accumulation_steps) == (4, 3)
    assert config("dpo", {"n_epochs": "auto", "beta": None}) == config("dpo")


def test_settings_of_a_method_reach_the_configuration() -> None:
    kto = config("kto", extra={"beta": 0.3, "desirable_weight": 2, "max_length": 64})
    assert (kto.beta, kto.desirable_weight, kto.max_length) == (0.3, 2, 64)
    distilled = config("distillation", extra={"teacher": "acme/large", "beta": 0, "temperature": 2})
    assert (distilled.teacher, distilled.beta, distilled.temperature) == ("acme/large", 0, 2)
    assert config("reward", extra={"center_rewards_coefficient": 0.01}).beta is None


def test_extra_settings_reach_the_configuration() -> None:
    made = config(
        extra={
            "rank": 4,
            "dropout": 0,
            "target_modules": ["q_proj"],
            "use_rslora": True,
            "max_length": 128,
            "max_steps": 5,
            "lr_scheduler": "cosine",
            "packing": True,
            "num_nodes": 2,
        },
        seed=9,
    )
    assert made.peft == Lora(r=4, alpha=8, dropout=0, target_modules=["q_proj"], use_rslora=True)
    assert (made.max_length, made.max_steps, made.lr_scheduler) == (128, 5, "cosine")
    assert (made.packing, made.num_nodes, made.seed) == (True, 2, 9)
    assert config(extra={"lora": False}).peft is None


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"method": "imitation"}, "method.type"),
        ({"method": "kto", "hyperparameters": {"batch_size": 1}}, "hyperparameters.batch_size"),
        ({"method": "kto", "hyperparameters": {"beta": 0.1}}, "hyperparameters.beta"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**31}, "seed"),
    ],
)
def test_a_request_that_cannot_be_trained_is_refused(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config(**arguments)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_epochs", 0),
        ("n_epochs", 51),
        ("n_epochs", 1.5),
        ("n_epochs", True),
        ("n_epochs", "3"),
        ("batch_size", 0),
        ("batch_size", 257),
        ("learning_rate_multiplier", 0),
        ("learning_rate_multiplier", -1),
        ("learning_rate_multiplier", float("nan")),
        ("learning_rate_multiplier", float("inf")),
        ("learning_rate_multiplier", "fast"),
        ("beta", 0.1),
        ("output_dir", "/etc"),
    ],
)
def test_a_hyperparameter_out_of_range_is_refused_by_its_path(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config("supervised", {name: value})
    assert caught.value.field == f"method.supervised.hyperparameters.{name}"
    assert str(caught.value).startswith(caught.value.field)


@pytest.mark.parametrize("value", [0, -0.1, 2.1, float("nan")])
def test_a_beta_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config("dpo", {"beta": value})
    assert caught.value.field == "method.dpo.hyperparameters.beta"


UNKNOWN = ("trust_remote_code", "model_name_or_path")


@pytest.mark.parametrize(
    ("method", "extra", "field"),
    [
        ("supervised", {"trust_remote_code": True}, "trust_remote_code"),
        ("supervised", {"model_name_or_path": "/etc"}, "model_name_or_path"),
        ("supervised", {"rank": 0}, "rank"),
        ("supervised", {"rank": 4096}, "rank"),
        ("supervised", {"max_length": 1}, "max_length"),
        ("supervised", {"lr_scheduler": "greedy"}, "lr_scheduler"),
        ("supervised", {"target_modules": []}, "target_modules"),
        ("supervised", {"target_modules": "q_proj"}, "target_modules"),
        ("supervised", {"target_modules": ["--push_to_hub"]}, "target_modules[0]"),
        ("supervised", {"target_modules": ["q_proj\n"]}, "target_modules[0]"),
        ("supervised", {"target_modules": [".*"]}, "target_modules[0]"),
        ("supervised", {"lora": False, "rank": 8}, "rank"),
        ("dpo", {"packing": False}, "packing"),
        ("dpo", {"assistant_only_loss": True}, "assistant_only_loss"),
        ("dpo", {"beta": 0.2}, "beta"),
        ("supervised", {"beta": 0.2}, "beta"),
        ("supervised", {"lora": False, "load_in_4bit": True}, "load_in_4bit"),
        ("kto", {"beta": 0}, "beta"),
        ("kto", {"packing": True}, "packing"),
        ("kto", {"desirable_weight": 0}, "desirable_weight"),
        ("orpo", {"beta": 2.5}, "beta"),
        ("orpo", {"desirable_weight": 1}, "desirable_weight"),
        ("reward", {"beta": 0.1}, "beta"),
        ("reward", {"teacher": "large"}, "teacher"),
        ("distillation", {}, "teacher"),
        ("distillation", {"teacher": "--push_to_hub"}, "teacher"),
        ("distillation", {"teacher": "large", "beta": 1.5}, "beta"),
        ("distillation", {"teacher": "large", "max_length": 64}, "max_length"),
        ("distillation", {"teacher": "large", "temperature": 0}, "temperature"),
    ],
)
def test_an_extra_setting_that_is_unknown_or_out_of_range_is_refused(
    method: str, extra: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config(method, extra=extra)
    assert caught.value.field == f"windlass.config.{field}"
    assert (caught.value.message == "unknown field") is (field in UNKNOWN)
