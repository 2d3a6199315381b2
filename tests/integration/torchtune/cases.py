"""Setup of TorchTune job tests, and checks of the result."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tests.integration.runner.cases import Case
from transformers import AutoTokenizer

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.backends import Sizing, TorchTuneConfig


def assign(
    case: Case,
    *,
    method: str = "supervised",
    rows: Sequence[Any] | None = None,
    validation: bool = False,
    held_out: Sequence[Any] | None = None,
    epochs: int = 1,
    processes: int = 1,
    **extra: Any,
) -> None:
    """The assignment of a TorchTune job."""
    case.assign(rows=rows, validation=validation, held_out=held_out)
    config = TorchTuneConfig.from_openai(
        method=method,
        hyperparameters={"n_epochs": epochs, "batch_size": 8},
        seed=7,
        sizing=Sizing(examples=24, model_bytes=3_000_000, processes=processes),
        extra=extra,
    )
    assignment = case.agent.assignment
    assignment.backend = assignment.framework = "torchtune"
    assignment.num_nodes = extra.get("num_nodes", 1)
    assignment.config = json.dumps(config.to_document()).encode()


async def finish(case: Case, python: Path, environ: Mapping[str, str] | None = None) -> None:
    """Runs an attempt that succeeds."""
    runner = await case.start("--torchtune-python", str(python), environ=environ)
    assert await runner.wait() == 0, case.log()
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED


def final(case: Case) -> Any:
    """The final model of the job."""
    (artifact,) = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    assert artifact.is_whole
    return artifact


def held_out_loss(case: Case, model: Any) -> float:
    """The loss by transformers on the validation file, over answers alone, token by token."""
    tokenizer = AutoTokenizer.from_pretrained(case.model)
    loss = tokens = 0.0
    for row in case.chats(8):
        messages = row["messages"]
        asked, whole = (
            tokenizer.apply_chat_template(part, tokenize=False, add_generation_prompt=prompt)
            for part, prompt in ((messages[:-1], True), (messages, False))
        )
        ids = tokenizer(whole.rstrip(), add_special_tokens=False, return_tensors="pt").input_ids
        start = len(tokenizer(asked, add_special_tokens=False).input_ids)
        with torch.no_grad():
            scores = model(ids).logits[0, start - 1 : -1].log_softmax(-1)
        loss -= float(scores.gather(1, ids[0, start:, None]).sum())
        tokens += ids.shape[1] - start
    return loss / tokens
