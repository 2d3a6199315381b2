"""`python -m windlass_agent.runner.torchtune_entry`: one of TorchTune's recipes, with a report.

It runs in an environment with the extra `torchtune`, whose torchao PEFT refuses: nothing here may
import PEFT, TRL or a model of transformers'.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import msgspec
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from windlass.backends.torchtune_document import Training
from windlass_agent.runner import torchtune_checkpoints, torchtune_data
from windlass_agent.runner.event_file import EventFile
from windlass_agent.runner.outcome import Failure
from windlass_agent.runner.threads import spare_threads
from windlass_agent.runner.torchtune_config import Places, recipe_config
from windlass_agent.runner.torchtune_model import model_type
from windlass_agent.runner.torchtune_recipes import reporting
from windlass_agent.runner.trainer_events import Failed


def main() -> None:
    """Trains; whatever the tenant can mend is written as a Failed event, with exit code 1."""
    options = _parser().parse_args()
    training = msgspec.json.decode(options.training, type=Training)
    places = Places(
        model=options.model,
        dataset=options.dataset,
        output=options.output,
        device=options.device,
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


def train(training: Training, places: Places, events: EventFile) -> None:
    """Runs the recipe of a training to its end; raises Failure, or SystemExit when stopped."""
    model: dict[str, Any] = msgspec.json.decode((places.model / "config.json").read_bytes())
    model_type(model)
    limit = min(training.max_length, model.get("max_position_embeddings") or training.max_length)
    tokenizer = AutoTokenizer.from_pretrained(places.model)
    tokens = places.dataset.with_name(f"{places.dataset.name}-tokens")
    rows = torchtune_data.prepare(
        places.dataset,
        tokens,
        method=training.method,
        tokenizer=tokenizer,
        limit=limit,
        vocabulary=model["vocab_size"],
        events=events,
    )
    document = recipe_config(
        training,
        Places(**{**vars(places), "dataset": tokens}),
        model=model,
        weights=_weights(training, places),
        rows=rows,
        max_tokens=limit,
        pad_id=tokenizer.pad_token_id or 0,
    )
    spare_threads(places.model)
    history: list[dict[str, Any]] = []
    if places.resume is not None:
        history = torchtune_checkpoints.history_of(places.resume)
        torchtune_checkpoints.begin_from(places.resume, places.output)
    kind = reporting(
        training.recipe,
        events=events,
        epochs=torchtune_checkpoints.Epochs(
            places.model,
            places.output,
            model,
            has_dora=training.adapter is not None and training.adapter.use_dora,
        ),
        history=history,
        held_out=tokens / "test.jsonl",
    )
    config = OmegaConf.create(document)
    recipe = kind(cfg=config)
    recipe.setup(cfg=config)
    recipe.train()
    recipe.cleanup()


def _weights(training: Training, places: Places) -> list[str]:
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
    main()
