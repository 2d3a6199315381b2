"""Loads the base models of a trainer."""

from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import AutoTokenizer

from windlass.tuning_api.trainers.records import TrainableModel
from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.sampling.continuing import Decode
from windlass_agent.tuning.trainer.driver import EngineThread
from windlass_agent.tuning.trainer.lora_trainer import LoraTrainer, TrainedBase

_SMALL = 20_000_000


def load_trainer(folders: Mapping[str, Path], limits: TuningLimits | None = None) -> LoraTrainer:
    """Loads models by name from their folders; raises UnfitBase. Takes as long as that takes.

    A model's name is what states and adapters are bound to, so that it names a version.
    """
    return LoraTrainer([load_base(name, path, limits) for name, path in folders.items()])


def load_base(name: str, folder: Path, limits: TuningLimits | None) -> TrainedBase:
    """Loads one model, and starts the thread of its engine; raises UnfitBase."""
    bounds = limits or TuningLimits()
    base = BaseNetwork.load(folder, name)
    if base.network.num_parameters() < _SMALL:
        # Waking a second thread costs more than it computes.
        torch.set_num_threads(1)
    engine = TuningEngine(base, bounds, decode=_decode(folder))
    model = TrainableModel(
        name=name,
        max_context_length=min(base.context, bounds.context or base.context),
        max_rank=bounds.rank,
        vocabulary_size=base.vocabulary,
        tokenizer_id=str(folder),
        architecture=str(base.network.config.model_type),
    )
    return TrainedBase(model, EngineThread(engine, name))


def _decode(folder: Path) -> Decode | None:
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError):
        return None

    def decode(tokens: list[int]) -> str:
        text: str = tokenizer.decode(tokens)
        return text

    return decode
