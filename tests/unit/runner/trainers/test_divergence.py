"""Detection of diverged trainings."""

import math

import pytest

from windlass_agent.runner.trainers.divergence import divergence


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_names_its_step(loss: float) -> None:
    found = divergence({"loss": loss, "grad_norm": math.nan}, step=7)
    assert found is not None
    assert (found.code, found.param) == ("loss_not_finite", "hyperparameters")
    assert "at step 7." in found.message


def test_gradients_alone_count_unless_the_loss_is_scaled() -> None:
    numbers = {"loss": 0.5, "grad_norm": math.inf}
    found = divergence(numbers, step=7)
    assert found is not None
    assert found.code == "gradient_not_finite"
    assert divergence(numbers, step=7, scales_loss=True) is None


@pytest.mark.parametrize("numbers", [{}, {"eval_loss": 1.0}, {"loss": 0.0, "grad_norm": 0.0}])
def test_what_is_finite_or_was_not_measured_is_no_matter(numbers: dict[str, float]) -> None:
    assert divergence(numbers, step=1) is None
