"""Older versions of vLLM learn while they serve as the newest does, and save what they learned."""

import pytest
import torch
from tests.support.engine_training.engine import trained_vllm
from tests.support.engine_training.lessons import (
    ANSWER,
    HELD_OUT,
    answers,
    lesson,
    question,
    streaming,
)
from tests.support.environments.made_once import tiny_model
from tests.support.environments.vllm_env import OLDER

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("version", OLDER)
def test_an_older_version_learns_while_clients_stream(
    version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from transformers import AutoModelForCausalLM

    # Short, as the path of a socket is.
    home = tmp_path_factory.mktemp("old")
    folder = str(home / "checkpoints")
    with trained_vllm(
        tiny_model(), home, version=version, WINDLASS_VLLM_CHECKPOINTS=folder
    ) as engine:
        assert ANSWER not in answers(engine)
        with streaming(engine, clients=2) as streams:
            job = engine.ended(engine.train(lesson(mode="fenced")))
        assert (job["status"], job["steps"]) == ("succeeded", 200), job
        assert any(first < last for first, last in streams.steps)
        assert answers(engine) == [ANSWER] * len(HELD_OUT)
        saved = engine.ended(str(engine.post("/checkpoint").json()["job_id"]))
        assert saved["status"] == "succeeded", saved
    model = AutoModelForCausalLM.from_pretrained(saved["folder"])
    with torch.no_grad():
        logits = model(torch.tensor([question(300)])).logits[0, -1]
    assert int(logits.argmax()) == ANSWER[0]
