"""Failure messages of jobs that ran out of memory."""

import pytest

from windlass_agent.memory import in_units, memory_limit
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.supervisor.oom_advice import explained

FAILED = Failure("out_of_memory", "The trainer ran out of memory.", param="hyperparameters")
GIB = 2**30
# As torch 2.13 words it.
GPU = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.25 GiB is free. Process 9 has 77.9 GiB memory in use."
)


def told(document: dict[str, object], log: str = "", limit: int = 0) -> str:
    failure = explained(FAILED, document, log, limit=limit)
    assert (failure.code, failure.param) == ("out_of_memory", "hyperparameters")
    return failure.message


def test_the_numbers_and_what_to_lower() -> None:
    assert told({"batch_size": 8, "max_length": 2048}, limit=4 * GIB) == (
        "The trainer ran out of memory. It may use 4 GiB. It trained on 8 examples of up to 2048 "
        "tokens at once: lower hyperparameters.batch_size or windlass.config.max_length, take a "
        "smaller model, or ask for more in windlass.resources."
    )


def test_of_a_gpu_torchs_own_numbers() -> None:
    message = told({"batch_size": 4, "max_length": 512}, GPU, limit=64 * GIB)
    assert "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB" in message
    assert "64 GiB" not in message


def test_a_batch_of_one_cannot_be_lowered() -> None:
    message = told({"batch_size": 1, "max_completion_length": 256, "max_length": 512})
    assert "1 example of up to 256 tokens" in message
    assert "lower windlass.config.max_completion_length, take" in message


@pytest.mark.parametrize("document", [{}, {"batch_size": "8", "max_length": 5}, {"batch_size": 2}])
def test_a_backend_that_has_no_such_settings(document: dict[str, object]) -> None:
    assert told(document).endswith("A smaller batch size or a smaller model needs less.")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (64 * 2**20, "64 MiB"), (3 * GIB // 2, "1.5 GiB")],
)
def test_bytes_for_people(size: int, text: str) -> None:
    assert in_units(size) == text


def test_there_is_a_limit_here() -> None:
    assert memory_limit() > 2**20
