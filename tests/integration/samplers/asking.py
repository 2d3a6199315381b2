"""Requests by token ids, and what transformers and PEFT say to the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from tests.support.processes.engine import RunningEngine
from transformers import AutoModelForCausalLM

from windlass.inference_api.routes import GENERATE
from windlass.tuning_api.trainers.records import (
    DType,
    OperationFailed,
    SampleRequest,
    Samples,
    Tensor,
)


def generated(engine: RunningEngine, tokens: list[int], model: str = "toy", **params: Any) -> Any:
    """The answer to token ids."""
    body = {"model": model, "token_ids": tokens, "sampling_params": params}
    with engine.http() as http:
        answer = http.post(GENERATE, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def tensor(tokens: list[int]) -> Tensor:
    """Tokens as they cross the port of trainers."""
    return Tensor(DType.INT32, (len(tokens),), np.array(tokens, "<i4").tobytes())


def unloaded(engine: RunningEngine) -> None:
    """Takes every adapter away, as a restart of the engine does."""
    with engine.http() as http:
        for one in http.get("/v1/models").json()["data"]:
            if one.get("parent"):
                http.post("/v1/unload_lora_adapter", json={"lora_name": one["id"]})


class Oracle:
    """The base in fp32 with an adapter of PEFT's."""

    def __init__(self, network: Any, toy: Path, adapter: Path):
        base = AutoModelForCausalLM.from_pretrained(toy, dtype=torch.float32)
        # What the engine answers by now.
        base.load_state_dict(network.state_dict())
        self._network = PeftModel.from_pretrained(base, str(adapter)).eval()

    def logprobs(self, tokens: list[int]) -> torch.Tensor:
        """Row i has those of every token after the first i + 1."""
        with torch.no_grad():
            logits: torch.Tensor = self._network(torch.tensor([tokens])).logits[0]
        return logits.log_softmax(-1)

    def checked(self, asked: SampleRequest, found: Samples | OperationFailed) -> list[int]:
        """The tokens of greedy samples, once all that was told of them is right."""
        assert isinstance(found, Samples)
        prompt = np.frombuffer(asked.prompt.data, "<i4").tolist()
        (tokens,) = {tuple(np.frombuffer(one.tokens, "<i4").tolist()) for one in found.sequences}
        rows = self.logprobs([*prompt, *tokens])
        own = rows[len(prompt) - 1 : -1]
        assert list(tokens) == own.argmax(-1).tolist()
        for one in found.sequences:
            assert not one.was_stopped
            assert one.topk
            told = np.frombuffer(one.logprobs, "<f4")
            assert told == pytest.approx(own.max(-1).values.numpy(), abs=1e-4)
            best = np.frombuffer(one.topk.logprobs, "<f4")
            expected = own.topk(one.topk.k).values.numpy().reshape(-1)
            assert best == pytest.approx(expected, abs=1e-4)
        assert found.prompt_logprobs
        assert found.topk_prompt_logprobs
        said = np.frombuffer(found.prompt_logprobs, "<f4")
        following = torch.tensor(prompt[1:])[:, None]
        expected = rows[: len(prompt) - 1].gather(-1, following)[:, 0].numpy()
        assert np.isnan(said[0])
        assert said[1:] == pytest.approx(expected, abs=1e-4)
        k = found.topk_prompt_logprobs.k
        best = np.frombuffer(found.topk_prompt_logprobs.logprobs, "<f4")
        expected = rows[: len(prompt) - 1].topk(k).values.numpy().reshape(-1)
        assert best[k:] == pytest.approx(expected, abs=1e-4)
        return list(tokens)
