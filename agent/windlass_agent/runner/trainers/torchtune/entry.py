"""`python -m windlass_agent.runner.trainers.torchtune.entry`: a TorchTune recipe, with a report.

Under torchrun it is one process of several, which train together by FSDP2.

It runs in an environment with the extra `torchtune`, whose torchao PEFT refuses: nothing here may
import PEFT, TRL or a model of transformers'.
"""

import argparse
import os
import warnings
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from omegaconf import OmegaConf
from torch import distributed
from transformers import AutoTokenizer

from windlass.backends.torchtune.document import TorchTuneTraining
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.protocol.trainer_events import Failed, Noted
from windlass_agent.runner.trainers import ranks
from windlass_agent.runner.trainers.saving import SaveClock
from windlass_agent.runner.trainers.threads import spare_threads
from windlass_agent.runner.trainers.torchtune import checkpoints as torchtune_checkpoints
from windlass_agent.runner.trainers.torchtune import data as torchtune_data
from windlass_agent.runner.trainers.torchtune.config import RecipeInputs, Steps, recipe_config
from windlass_agent.runner.trainers.torchtune.model import model_type
from windlass_agent.runner.trainers.torchtune.recipes import Report, reporting

# Until the first process of each node has the rows in tokens.
_PREPARING = timedelta(hours=1)
_GROUPS = {"cpu": "gloo", "cuda": "cuda:nccl,cpu:gloo"}


def main() -> None:
    """Trains; errors that the tenant can correct become a Failed event, with exit code 1."""
    options = _parser().parse_args()
    training = msgspec.json.decode(options.training, type=TorchTuneTraining)
    places = RecipeInputs(
        model=options.model,
        dataset=options.dataset,
        output=options.output,
        device=options.device,
        processes=int(os.environ.get("WORLD_SIZE", "1")),
        resume=options.resume,
    )
    events = EventFile.of_environment()
    # It steps at the end of an epoch, as TorchTune wants it to.
    warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
    try:
        train(training, places, events)
    except Failure as failure:
        events.write(Failed(code=failure.code, message=failure.message, param=failure.param))
        raise SystemExit(1) from None


def train(training: TorchTuneTraining, places: RecipeInputs, events: EventFile) -> None:
    """Runs the recipe of a training to its end; raises Failure, or SystemExit when stopped."""
    model: dict[str, Any] = msgspec.json.decode((places.model / "config.json").read_bytes())
    model_type(model)
    limit = min(training.max_length, model.get("max_position_embeddings") or training.max_length)
    tokenizer = AutoTokenizer.from_pretrained(places.model)
    rows = replace(places, dataset=places.dataset / "tokens")
    if os.environ.get("LOCAL_RANK", "0") == "0":
        torchtune_data.prepare(
            places.dataset,
            rows.dataset,
            method=training.method,
            tokenizer=tokenizer,
            limit=limit,
            vocabulary=model["vocab_size"],
            events=events,
        )
        if places.resume is not None:
            torchtune_checkpoints.begin_from(places.resume, places.output)
    if places.processes > 1:
        # Others of a node wait here for what its first one has just written.
        distributed.init_process_group(_GROUPS[places.device], timeout=_PREPARING)
        ranks.hold_group()
    count = torchtune_data.count(rows.dataset)
    steps = Steps.of(training, count, processes=places.processes)
    if message := steps.rounding(count, processes=places.processes):
        events.write(Noted(message=message))
    document = recipe_config(
        training,
        rows,
        model=model,
        weights=_weights(training, places),
        rows=count,
        max_tokens=limit,
        pad_id=tokenizer.pad_token_id or 0,
    )
    spare_threads(places.model)
    _run(_kind(training, rows, model, events), document)


def _kind(
    training: TorchTuneTraining, places: RecipeInputs, model: dict[str, Any], events: EventFile
) -> type[Any]:
    resume, held_out = places.resume, places.dataset / "test.jsonl"
    report = Report(
        events=events,
        epochs=torchtune_checkpoints.Epochs(
            places.model,
            places.output,
            model,
            has_dora=training.adapter is not None and training.adapter.use_dora,
        ),
        history=[] if resume is None else torchtune_checkpoints.history_of(resume),
        step=None if resume is None else torchtune_checkpoints.step_of(resume),
        clock=SaveClock(steps=training.save_steps, minutes=training.save_minutes),
        held_out=held_out if held_out.exists() else None,
    )
    return reporting(training.recipe(places.processes // training.num_nodes), report)


def _run(kind: type[Any], document: dict[str, Any]) -> None:
    config = OmegaConf.create(document)
    recipe = kind(cfg=config)
    recipe.setup(cfg=config)
    recipe.train()
    recipe.cleanup()


def _weights(training: TorchTuneTraining, places: RecipeInputs) -> list[str]:
    """The files that are loaded: the base's, or those of a full training that goes on."""
    if places.resume is not None and training.adapter is None:
        return torchtune_checkpoints.resumed_weights(places.resume)
    return [path.name for path in sorted(places.model.glob("*.safetensors"))]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-torchtune", allow_abbrev=False)
    for name in ("model", "dataset", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--training", required=True, help="JSON of the job's document")
    parser.add_argument("--resume", type=Path, help="checkpoint of an earlier attempt")
    return parser


if __name__ == "__main__":
    ranks.run(main)
