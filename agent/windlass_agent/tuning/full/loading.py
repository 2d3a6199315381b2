"""Makes the trainer of one run of all parameters: ours, or one of a distribution's."""

from pathlib import Path

from windlass.tuning_api.trainers.described import described
from windlass.tuning_api.trainers.engines import FullTrainerSpec, engine_named
from windlass.tuning_api.trainers.port import Trainer
from windlass_agent.tuning.full.engine import FullEngine
from windlass_agent.tuning.full.ranks import Ranks
from windlass_agent.tuning.full.snapshots import Snapshots
from windlass_agent.tuning.full.trainer import FullTrainer
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.trainer.loading import load_base


def full_engine(name: str, folder: Path, limits: TuningLimits) -> FullEngine:
    """Makes our engine, in this process and those that torchrun started with it."""
    return FullEngine(folder, name, limits, Ranks.joined())


def load_full_trainer(
    name: str, folder: Path, limits: TuningLimits, *, engine: str = "", processes: int = 1
) -> Trainer:
    """The trainer of a model's folder; raises UnreadableModel, UnknownEngine.

    It loads a model when the first run or prompt needs it.
    """
    model = described(name, folder, max_rank=limits.rank)
    if engine:
        return engine_named(engine)(
            FullTrainerSpec(model=model, folder=folder, processes=processes)
        )
    snapshots = Snapshots(lambda saved: load_base(name, saved, limits).thread)
    return FullTrainer(model, folder, full_engine(name, folder, limits), snapshots)
